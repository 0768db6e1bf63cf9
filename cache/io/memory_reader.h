// A Reader over bytes in memory: for tests and for files that are there already. A read is complete
// when it is submitted; it still takes a Wait() to hand it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

#include "cache/io/finished_reads.h"
#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

// `bytes` outlives the reader. As with a file, a request may run past the end by less than
// `align_bytes`; it need not be aligned. InvalidArgument unless 1 <= in_flight_max <=
// kReaderInFlightMax and align_bytes is a power of two.
struct MemoryReaderOptions {
  uint32_t in_flight_max = 16;
  uint64_t align_bytes = 4096;
  Clock& clock;
};
absl::StatusOr<std::unique_ptr<Reader>> OpenMemoryReader(std::span<const std::byte> bytes,
                                                         const MemoryReaderOptions& options);

}  // namespace hearth
