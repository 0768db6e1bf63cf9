#include "cache/io/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "cache/io/process_limits.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

DirectDemand AskFileSystem(int fd) {
  DirectDemand demand;
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    demand.known = true;
    demand.memory_bytes = info.stx_dio_mem_align;
    demand.offset_bytes = info.stx_dio_offset_align;
    demand.allowed = info.stx_dio_offset_align != 0;
  }
#else
  (void)fd;
#endif
  return demand;
}

int OpenForReading(const std::string& path) {
  // O_NONBLOCK: opening a named pipe returns at once, to be refused afterwards.
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

bool SetDirect(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return false;
  return ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

std::string WhyNotDirect(const DirectDemand& demand, uint64_t align_bytes) {
  if (!demand.known) return "";
  if (!demand.allowed) return "the file system does not offer direct reads of it";
  const uint64_t asked_bytes = std::max(demand.memory_bytes, demand.offset_bytes);
  if (asked_bytes <= align_bytes) return "";
  return absl::StrCat("the file system asks for direct reads at multiples of ", asked_bytes,
                      " bytes, ours are multiples of ", align_bytes);
}

DirectFile::DirectFile(UniqueFd fd, std::string path, uint64_t bytes)
    : fd_(std::move(fd)), path_(std::move(path)), bytes_(bytes) {}

absl::StatusOr<std::unique_ptr<DirectFile>> DirectFile::Open(const std::string& path,
                                                             bool want_direct,
                                                             uint64_t align_bytes) {
  UniqueFd fd(OpenForReading(path));
  if (!fd.valid() && errno == EMFILE && RaiseDescriptorLimit()) fd = UniqueFd(OpenForReading(path));
  if (!fd.valid()) {
    return errno == EMFILE ? DescriptorLimitError(path) : ErrnoStatus(errno, path);
  }
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  std::unique_ptr<DirectFile> file(
      new DirectFile(std::move(fd), path, static_cast<uint64_t>(info.st_size)));
  if (want_direct) {
    file->refusal_ = file->ProbeDirect(align_bytes);
    file->opened_direct_ = file->refusal_.empty();
    file->direct_.store(file->opened_direct_, std::memory_order_release);
    if (!file->opened_direct_) SetDirect(file->fd(), false);
  }
  return file;
}

// Turns direct reading on; why it cannot be, or empty.
std::string DirectFile::ProbeDirect(uint64_t align_bytes) {
  std::string why = WhyNotDirect(AskFileSystem(fd()), align_bytes);
  if (!why.empty()) return why;
  if (!SetDirect(fd(), true)) return absl::StrCat("O_DIRECT: ", std::strerror(errno));
  // Some file systems take the flag and refuse the first read. An address that is a multiple of
  // align_bytes and of nothing more shows what the caller's will meet.
  const uint64_t block_bytes = std::max<uint64_t>(align_bytes, 512);
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(2 * block_bytes, 4 * block_bytes), &std::free);
  if (memory == nullptr) return "no memory to try it";
  auto* const odd_block = static_cast<std::byte*>(memory.get()) + block_bytes;
  const uint64_t odd_offset = bytes_ > 2 * block_bytes ? block_bytes : 0;
  ssize_t got;
  do {
    got = ::pread(fd(), odd_block, block_bytes, static_cast<off_t>(odd_offset));
  } while (got < 0 && errno == EINTR);
  // Other errors are of this block: the read that needs it will report them.
  if (got < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
    return absl::StrCat("a direct read of ", block_bytes, " bytes at ", odd_offset,
                        " was refused: ", std::strerror(errno));
  }
  return "";
}

void DirectFile::StopDirect() {
  SetDirect(fd(), false);
  direct_.store(false, std::memory_order_release);
}

std::string DirectFile::Note() const {
  const bool lost = opened_direct_ && !direct();
  if (refusal_.empty() && !lost) return "";
  return absl::StrCat(path_, ": read through the page cache, not directly: ",
                      lost ? "a direct read was refused with EINVAL" : refusal_,
                      "; put the file on a local file system (ext4, XFS) to read past the cache");
}

}  // namespace hearth
