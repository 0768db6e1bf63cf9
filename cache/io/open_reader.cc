#include "cache/io/open_reader.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "cache/io/direct_file.h"
#include "cache/io/pread_reader.h"
#include "cache/io/step_down_reader.h"
#include "cache/io/uring_reader.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kPreadThreadsMax = 64;

absl::Status CheckOptions(const ReaderOptions& options) {
  const auto refuse = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("reader options: ", parts...));
  };
  if (options.in_flight_max < 1 || options.in_flight_max > kReaderInFlightMax) {
    return refuse("in_flight_max is ", options.in_flight_max, ", not 1 to ", kReaderInFlightMax);
  }
  if (options.pread_threads < 1 || options.pread_threads > kPreadThreadsMax) {
    return refuse("pread_threads is ", options.pread_threads, ", not 1 to ", kPreadThreadsMax);
  }
  if (!std::has_single_bit(options.align_bytes)) {
    return refuse("align_bytes is ", options.align_bytes, ", not a power of two");
  }
  if (options.attempt_bytes_max % options.align_bytes != 0) {
    return refuse("attempt_bytes_max is ", options.attempt_bytes_max, ", not a multiple of ",
                  options.align_bytes);
  }
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<uintptr_t>(options.buffers.data()) % page_bytes != 0) {
    return refuse("buffers do not begin on a page of ", page_bytes, " bytes");
  }
  return absl::OkStatus();
}

PreadReaderOptions PreadOptions(const ReaderOptions& options, std::vector<std::string> notes) {
  return {.in_flight_max = options.in_flight_max,
          .thread_count = options.pread_threads,
          .align_bytes = options.align_bytes,
          .attempt_bytes_max = options.attempt_bytes_max,
          .notes = std::move(notes),
          .clock = options.clock};
}

std::string SteppedDown(const std::string& path, const ReaderOptions& options,
                        const absl::Status& why) {
  return absl::StrCat(path, ": read by ", std::min(options.pread_threads, options.in_flight_max),
                      " pread threads: ", why.message());
}

// io_uring that gives way to pread threads should it be refused later.
std::unique_ptr<Reader> WithSuccessor(std::unique_ptr<UringReader> uring,
                                      std::shared_ptr<DirectFile> file,
                                      const ReaderOptions& options) {
  auto make_successor = [file = std::move(file), options](const absl::Status& refusal) {
    return MakePreadReader(file,
                           PreadOptions(options, {SteppedDown(file->path(), options, refusal)}));
  };
  return std::make_unique<StepDownReader>(std::move(uring), std::move(make_successor));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path,
                                                   const ReaderOptions& options) {
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<DirectFile> file,
                          DirectFile::Open(path, options.direct, options.align_bytes));
  if (options.choice == IoChoice::kPread) {
    return MakePreadReader(std::move(file), PreadOptions(options, {}));
  }
  absl::StatusOr<std::unique_ptr<UringReader>> uring =
      UringReader::Create(file, {.in_flight_max = options.in_flight_max,
                                 .buffers = options.buffers,
                                 .align_bytes = options.align_bytes,
                                 .attempt_bytes_max = options.attempt_bytes_max,
                                 .clock = options.clock});
  if (options.choice == IoChoice::kUring) {
    if (!uring.ok()) return Annotate(uring.status(), path);
    return std::move(uring).value();
  }
  if (uring.ok()) return WithSuccessor(std::move(uring).value(), std::move(file), options);
  return MakePreadReader(std::move(file),
                         PreadOptions(options, {SteppedDown(path, options, uring.status())}));
}

}  // namespace hearth
