// Experts that pass through a card's memory for one layer: copied in groups into a ring of buffers
// by a stream of copies, computed by another stream, each waiting for the other on the card. The
// host only enqueues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/stream.h"
#include "runtime/experts/expert_card.h"
#include "runtime/experts/pinned_ranges.h"

namespace hearth {

// Experts of one group: their copies are a few, so that the link is never idle, and their kernels
// one launch.
inline constexpr uint32_t kStreamGroup = 4;

class StreamRing {
 public:
  static constexpr uint32_t kGroups = 3;  // one copied, one computed, one between
  static uint64_t BytesFor(uint64_t blob_bytes_max) {
    return kGroups * kStreamGroup * blob_bytes_max;
  }
  // `pinned` outlives the ring.
  static absl::StatusOr<StreamRing> Create(GpuId gpu, uint64_t blob_bytes_max,
                                           const PinnedRanges& pinned);

  // Where expert `i` of the next Run() will be on the card.
  const std::byte* AddressOf(size_t i) const;
  // Enqueues for each group of experts [4 * group, ...) its copies, waits between the streams, and
  // what compute(group) enqueues on `compute_stream` to read them.
  absl::Status Run(std::span<const StreamedExpert> experts, CudaStreamView compute_stream,
                   absl::FunctionRef<absl::Status(uint32_t group)> compute);
  // From the first copy of the last Run() to its last; once the compute stream has passed it.
  absl::StatusOr<double> Seconds() const;
  static uint32_t GroupCount(size_t experts) {
    return static_cast<uint32_t>((experts + kStreamGroup - 1) / kStreamGroup);
  }

 private:
  StreamRing(UniqueStream copies, DeviceBuffer memory, uint64_t blob_bytes_max,
             const PinnedRanges& pinned, UniqueEvent first, UniqueEvent last)
      : copies_(std::move(copies)),
        memory_(std::move(memory)),
        blob_bytes_max_(blob_bytes_max),
        pinned_(&pinned),
        first_(std::move(first)),
        last_(std::move(last)) {}
  uint64_t OffsetBytes(size_t i) const {
    const size_t place = (next_ + i / kStreamGroup) % kGroups;
    return (place * kStreamGroup + i % kStreamGroup) * blob_bytes_max_;
  }
  absl::Status Copy(std::span<const std::byte> bytes, uint64_t offset_bytes);

  UniqueStream copies_;
  DeviceBuffer memory_;
  uint64_t blob_bytes_max_;
  const PinnedRanges* pinned_;
  UniqueEvent first_, last_;           // of the copies of a Run()
  std::vector<UniqueEvent> copied_;    // by group of the ring
  std::vector<UniqueEvent> computed_;  // the same; never recorded: nobody reads it
  uint32_t next_ = 0;                  // group of the ring that the next Run() begins with
};

}  // namespace hearth
