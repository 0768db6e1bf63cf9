#include "cache/io/read_progress.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kOffsetMaxBytes = uint64_t{INT64_MAX};

}  // namespace

ReadProgress::ReadProgress(const ReadRequest& request, const ReadBounds& bounds)
    : request_(request), bounds_(bounds), needed_bytes_(request.into.size()) {
  if (request.offset_bytes >= bounds.file_bytes) return;
  const uint64_t left_bytes = bounds.file_bytes - request.offset_bytes;
  // The last block of the file may be cut short.
  if (needed_bytes_ > left_bytes && needed_bytes_ - left_bytes < bounds.align_bytes) {
    needed_bytes_ = left_bytes;
  }
}

std::span<std::byte> ReadProgress::next_into() const {
  const std::span<std::byte> rest = request_.into.subspan(got_bytes_);
  if (bounds_.attempt_bytes_max == 0) return rest;
  return rest.first(std::min<uint64_t>(rest.size(), bounds_.attempt_bytes_max));
}

ReadProgress::Next ReadProgress::Fail(Failure failure, int error_number) {
  failure_ = failure;
  error_number_ = error_number;
  return Next::kFailed;
}

ReadProgress::Next ReadProgress::Begin() {
  if (request_.into.empty()) return Next::kDone;
  // No file reaches that far; the kernel would call it an invalid argument.
  if (request_.offset_bytes > kOffsetMaxBytes - request_.into.size()) {
    return Fail(Failure::kEndOfFile);
  }
  if (!bounds_.direct) return Next::kReadMore;
  const uint64_t bits = request_.offset_bytes | request_.into.size() |
                        reinterpret_cast<uintptr_t>(request_.into.data());
  if ((bits & (bounds_.align_bytes - 1)) != 0) return Fail(Failure::kMisaligned);
  return Next::kReadMore;
}

ReadProgress::Next ReadProgress::Advance(int64_t result) {
  if (result == -EINVAL && bounds_.direct) return Next::kWithoutDirect;
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    return Fail(Failure::kErrno, static_cast<int>(-result));
  }
  if (result == 0) return Fail(Failure::kEndOfFile);
  const uint64_t before_bytes = got_bytes_;
  if (result > 0) got_bytes_ += static_cast<uint64_t>(result);
  if (got_bytes_ >= needed_bytes_) return Next::kDone;
  const uint64_t rest_bytes = got_bytes_ & (bounds_.align_bytes - 1);
  if (bounds_.direct && rest_bytes != 0) {
    // A direct read stops inside a block where the file ends. Where the file did not end when it
    // was opened, it is asked once more, from the block's beginning.
    const bool is_end = request_.offset_bytes + got_bytes_ >= bounds_.file_bytes;
    const bool is_stuck = got_bytes_ - rest_bytes <= before_bytes && saw_part_of_block_;
    if (is_end || is_stuck) return Fail(Failure::kEndOfFile);
    saw_part_of_block_ = true;
    got_bytes_ -= rest_bytes;
  }
  if (got_bytes_ > before_bytes) {
    fruitless_count_ = 0;
  } else if (++fruitless_count_ >= kFruitlessMax) {
    return Fail(Failure::kFruitless, result < 0 ? static_cast<int>(-result) : EAGAIN);
  }
  return Next::kReadMore;
}

absl::Status ReadProgress::Error(const std::string& path) const {
  const std::string what = absl::StrCat(path, ": read at ", request_.offset_bytes, ": wanted ",
                                        request_.into.size(), " bytes, got ", got_bytes_);
  switch (failure_) {
    case Failure::kNone:
      break;
    case Failure::kMisaligned:
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": read of ", request_.into.size(), " bytes at ", request_.offset_bytes, " into ",
          absl::Hex(reinterpret_cast<uintptr_t>(request_.into.data())),
          ": all three must be multiples of ", bounds_.align_bytes, " for a direct read"));
    case Failure::kEndOfFile:
      return absl::OutOfRangeError(absl::StrCat(what, ": the file ends there; it had ",
                                                bounds_.file_bytes, " bytes when it was opened"));
    case Failure::kFruitless:
      return ErrnoStatus(error_number_, absl::StrCat(what, " after ", kFruitlessMax, " attempts"));
    case Failure::kErrno:
      return ErrnoStatus(error_number_, what);
  }
  return absl::OkStatus();
}

}  // namespace hearth
