// Many positioned reads of one file at once, finished in any order. Implementations: io_uring, a
// pool of pread threads, memory; decorators count, limit and inject faults.
//
// One thread owns a Reader: it alone submits and waits. Wake() may come from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

struct ReadRequest {
  uint64_t offset_bytes = 0;
  std::span<std::byte> into;  // stays valid and untouched until the completion
  uint64_t tag = 0;           // comes back with the completion
};

struct ReadCompletion {
  uint64_t tag = 0;
  absl::Status status;     // ok: every byte is there. Else file, offset, wanted and got
  int64_t latency_ns = 0;  // from submission to completion
};

struct ReaderTraits {
  std::string kind;                // "uring", "pread", "memory"
  bool direct = false;             // past the page cache (O_DIRECT)
  bool registered = false;         // buffers are registered with the kernel
  uint64_t align_bytes = 1;        // offsets, lengths and addresses are multiples of it
  uint32_t in_flight_max = 1;      // requests
  std::vector<std::string> notes;  // one line for each fallback: why, and the remedy
};

class Reader {
 public:
  virtual ~Reader() = default;  // waits for what is in flight
  // Takes the first requests, as many as there is room for, and says how many. An error belongs to
  // the reader as a whole; errors of single reads come with their completions.
  virtual absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) = 0;
  // Waits until a read is complete, Wake() is called or `timeout_ns` has passed; how many of `out`
  // it filled. Each submitted request completes exactly once.
  virtual absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) = 0;
  virtual void Wake() = 0;
  virtual uint32_t in_flight() const = 0;
  virtual const ReaderTraits& traits() const = 0;
};

}  // namespace hearth
