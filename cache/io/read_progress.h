// What becomes of one request while the kernel answers it in pieces: short answers are continued,
// interruptions are repeated a bounded number of times, the end of the file and errors are told
// apart. Pure: the readers do the reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "cache/io/reader.h"

namespace hearth {

// What a request is checked against.
struct ReadBounds {
  uint64_t file_bytes = 0;         // when it was opened
  uint64_t align_bytes = 1;        // the caller's; a request may pass the end by less than this
  bool direct = false;             // the kernel asks for alignment
  uint64_t attempt_bytes_max = 0;  // 0: no limit
};

class ReadProgress {
 public:
  enum class Next {
    kReadMore,       // ask for next_into() at next_offset_bytes()
    kDone,           // every byte of the file that was wanted is there
    kFailed,         // error() says why
    kWithoutDirect,  // the kernel refused a direct read: ask again through the page cache
  };

  // Attempts in a row that bring nothing before a request fails: a busy kernel is not waited for
  // without end.
  static constexpr uint32_t kFruitlessMax = 64;

  ReadProgress() = default;
  ReadProgress(const ReadRequest& request, const ReadBounds& bounds);

  // Whether the request may be asked at all: kReadMore, kDone (it is empty) or kFailed.
  Next Begin();
  uint64_t next_offset_bytes() const { return request_.offset_bytes + got_bytes_; }
  std::span<std::byte> next_into() const;
  // `result`: bytes read, 0 at the end of the file, or -errno.
  Next Advance(int64_t result);
  // From now on the file is read through the page cache.
  void StopDirect() { bounds_.direct = false; }

  const ReadRequest& request() const { return request_; }
  absl::Status Error(const std::string& path) const;  // after kFailed

 private:
  enum class Failure { kNone, kMisaligned, kEndOfFile, kFruitless, kErrno };
  Next Fail(Failure failure, int error_number = 0);

  ReadRequest request_;
  ReadBounds bounds_;
  uint64_t needed_bytes_ = 0;  // of the request, those before the end of the file
  uint64_t got_bytes_ = 0;
  uint32_t fruitless_count_ = 0;    // attempts in a row
  bool saw_part_of_block_ = false;  // of a direct read
  Failure failure_ = Failure::kNone;
  int error_number_ = 0;
};

}  // namespace hearth
