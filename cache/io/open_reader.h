// Opens a file for reading by the best means that this machine allows: io_uring, else a pool of
// pread threads; past the page cache, else through it. Every step down leaves one line in
// traits().notes with the reason, what was needed, what there is, and the remedy. The bytes read
// are the same in every mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

enum class IoChoice {
  kAuto,   // io_uring where it is allowed
  kUring,  // io_uring or an error
  kPread,
};

inline constexpr uint32_t kReaderInFlightMax = 1024;  // requests; the ring has an entry for each

struct ReaderOptions {
  IoChoice choice = IoChoice::kAuto;
  uint32_t in_flight_max = 16;  // requests, 1 to kReaderInFlightMax
  uint32_t pread_threads = 4;   // of the pread pool, 1 to 64; in_flight_max where that is less
  // The memory that reads land in: registered with io_uring in pieces of at most 1 GiB, so that the
  // kernel need not pin it for each read. Page-aligned, and outlives the reader. Reads may land
  // elsewhere too, at the price of pinning.
  std::span<std::byte> buffers;
  bool direct = true;  // past the page cache where the file system allows it
  // What all offsets, lengths and addresses of the caller are multiples of, a power of two. A file
  // that asks for more is read through the page cache.
  uint64_t align_bytes = 4096;
  // Most bytes that one system call or ring entry asks for, the rest following in further ones; a
  // multiple of align_bytes, 0: no limit. For tests of that path.
  uint64_t attempt_bytes_max = 0;
  Clock& clock;  // outlives the reader
};

// `path` is a regular file. A request may run past its end by less than `align_bytes`: the file
// ends inside the last block, and the bytes behind its end have no meaning. Anything further past
// the end is OutOfRange, a request that is not aligned InvalidArgument (both with its completion).
//
// The thread that first submits or waits owns the reader. It may be destroyed by another thread.
//
// NotFound, PermissionDenied and InvalidArgument name the file; ResourceExhausted names the limit;
// with kUring, FailedPrecondition says why io_uring cannot be used.
absl::StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path,
                                                   const ReaderOptions& options);

}  // namespace hearth
