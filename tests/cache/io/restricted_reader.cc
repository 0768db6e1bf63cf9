// A program that puts limits on itself, opens a reader and checks every byte that it reads: what a
// container, an ordinary user or a late filter meets. Prints what became of it, one fact a line.
//
// usage: restricted_reader FILE REPORT [option=value]...
//   io=auto|uring|pread   buffers=BYTES (registered memory)   cycles=N (open and close again)
//   refuse=ERRNO          io_uring's system calls fail with it: see when
//   when=start|opened|reading   before opening; before the first read; with reads in flight
//   uid=N                 become this user
//   memlock=SOFT:HARD     bytes
//   files=SOFT:HARD       descriptors beyond those that are open
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cache/io/open_reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kReadBytes = 5 * 4096;
constexpr uint32_t kInFlightMax = 8;

using Settings = std::map<std::string, std::string>;

std::string Text(const Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

uint64_t Number(const Settings& settings, const std::string& name, uint64_t otherwise) {
  const std::string text = Text(settings, name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

// io_uring's three system calls fail with `error_number` from now on.
absl::Status RefuseUring(uint16_t error_number) {
  const uint32_t refusal = SECCOMP_RET_ERRNO | error_number;
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refusal),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {.len = std::size(program), .filter = program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    return ErrnoStatus(errno, "prctl");
  }
  return absl::OkStatus();
}

absl::Status SetLimit(decltype(RLIMIT_NOFILE) resource, const std::string& text, uint64_t base) {
  if (text.empty()) return absl::OkStatus();
  char* rest = nullptr;
  struct rlimit limit = {};
  limit.rlim_cur = base + std::strtoull(text.c_str(), &rest, 10);
  limit.rlim_max = base + std::strtoull(rest + 1, nullptr, 10);
  if (::setrlimit(resource, &limit) != 0) return ErrnoStatus(errno, "setrlimit");
  return absl::OkStatus();
}

absl::Status RefuseAt(const Settings& settings, const std::string& moment) {
  if (Text(settings, "when") != moment) return absl::OkStatus();
  return RefuseUring(static_cast<uint16_t>(Number(settings, "refuse", 0)));
}

absl::Status Restrict(const Settings& settings) {
  HEARTH_RETURN_IF_ERROR(SetLimit(RLIMIT_MEMLOCK, Text(settings, "memlock"), 0));
  const auto uid = static_cast<uid_t>(Number(settings, "uid", ::getuid()));
  if (uid != ::getuid() && ::setuid(uid) != 0) return ErrnoStatus(errno, "setuid");
  ::prctl(PR_SET_DUMPABLE, 1);  // a leak checker looks at its own process
  const UniqueFd first_free(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  HEARTH_RETURN_IF_ERROR(
      SetLimit(RLIMIT_NOFILE, Text(settings, "files"), static_cast<uint64_t>(first_free.get())));
  return RefuseAt(settings, "start");
}

// Reads the whole file in requests of kReadBytes, kInFlightMax at a time.
absl::Status ReadAndCompare(Reader& reader, const Settings& settings, std::span<std::byte> memory,
                            std::span<const std::byte> want) {
  std::vector<ReadRequest> requests;
  for (uint64_t offset = 0; offset < want.size(); offset += kReadBytes) {
    const uint64_t length_bytes = std::min(kReadBytes, AlignUp(want.size() - offset, 4096));
    requests.push_back({offset, memory.subspan(offset, length_bytes), requests.size()});
  }
  std::vector<ReadCompletion> done(kInFlightMax);
  size_t sent = 0;
  bool is_first = true;
  for (size_t completed = 0; completed < requests.size();) {
    HEARTH_ASSIGN_OR_RETURN(const size_t taken, reader.Submit(std::span(requests).subspan(sent)));
    sent += taken;
    if (is_first) HEARTH_RETURN_IF_ERROR(RefuseAt(settings, "reading"));
    is_first = false;
    HEARTH_ASSIGN_OR_RETURN(const size_t n, reader.Wait(done, int64_t{60'000'000'000}));
    if (n == 0) return absl::DeadlineExceededError("nothing completed");
    for (size_t i = 0; i < n; ++i) HEARTH_RETURN_IF_ERROR(done[i].status);
    completed += n;
  }
  if (!std::equal(want.begin(), want.end(), memory.begin())) {
    return absl::DataLossError("other bytes than the file's");
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& path, const Settings& settings, std::string& report) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, uint64_t{1} << 30));
  const uint64_t memory_bytes = Number(settings, "buffers", text.size() + kReadBytes);
  HEARTH_ASSIGN_OR_RETURN(const AnonymousMapping memory, AnonymousMapping::Create(memory_bytes));
  HEARTH_RETURN_IF_ERROR(Restrict(settings));
  SteadyClock clock;
  const std::string io = Text(settings, "io");
  const IoChoice choice = io == "uring"   ? IoChoice::kUring
                          : io == "pread" ? IoChoice::kPread
                                          : IoChoice::kAuto;
  for (uint64_t left = Number(settings, "cycles", 1); left > 0; --left) {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader,
                            OpenReader(path, {.choice = choice,
                                              .in_flight_max = kInFlightMax,
                                              .buffers = memory.data(),
                                              .clock = clock}));
    HEARTH_RETURN_IF_ERROR(RefuseAt(settings, "opened"));
    HEARTH_RETURN_IF_ERROR(
        ReadAndCompare(*reader, settings, memory.data(), std::as_bytes(std::span(text))));
    const ReaderTraits& traits = reader->traits();
    absl::StrAppend(&report, "reader ", traits.kind, traits.direct ? " direct" : " buffered",
                    traits.registered ? " registered" : " unregistered", "\n");
    for (const std::string& note : traits.notes) absl::StrAppend(&report, "note ", note, "\n");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const hearth::UniqueFd report_fd(::open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600));
  hearth::Settings settings;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    settings[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  std::string report;
  const absl::Status status = hearth::Run(argv[1], settings, report);
  if (!status.ok()) absl::StrAppend(&report, "error ", status.ToString(), "\n");
  const ssize_t written = ::write(report_fd.get(), report.data(), report.size());
  return written == static_cast<ssize_t>(report.size()) && status.ok() ? 0 : 1;
}
