#include "runtime/experts/stream_ring.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<StreamRing> StreamRing::Create(GpuId gpu, uint64_t blob_bytes_max,
                                              const PinnedRanges& pinned) {
  HEARTH_ASSIGN_OR_RETURN(UniqueStream copies, UniqueStream::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Create(gpu, BytesFor(blob_bytes_max)));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent first, UniqueEvent::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent last, UniqueEvent::Create(gpu));
  StreamRing ring(std::move(copies), std::move(memory), blob_bytes_max, pinned, std::move(first),
                  std::move(last));
  for (std::vector<UniqueEvent>* events : {&ring.copied_, &ring.computed_}) {
    for (uint32_t i = 0; i < kGroups; ++i) {
      HEARTH_ASSIGN_OR_RETURN(UniqueEvent event, UniqueEvent::Create(gpu, EventKind::kUntimed));
      events->push_back(std::move(event));
    }
  }
  return ring;
}

// A copy may not leave the piece of memory that was pinned as one.
absl::Status StreamRing::Copy(std::span<const std::byte> bytes, uint64_t offset_bytes) {
  while (!bytes.empty()) {
    const uint64_t pinned = pinned_->PinnedBytes(bytes);
    HEARTH_CHECK(pinned > 0);
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(bytes.first(pinned), memory_, offset_bytes, copies_.view()));
    bytes = bytes.subspan(pinned);
    offset_bytes += pinned;
  }
  return absl::OkStatus();
}

const std::byte* StreamRing::AddressOf(size_t i) const { return memory_.data() + OffsetBytes(i); }

absl::Status StreamRing::Run(std::span<const StreamedExpert> experts, CudaStreamView compute_stream,
                             absl::FunctionRef<absl::Status(uint32_t group)> compute) {
  const uint32_t group_count = GroupCount(experts.size());
  for (uint32_t group = 0; group < group_count; ++group) {
    const uint32_t place = (next_ + group) % kGroups;
    const size_t begin = size_t{group} * kStreamGroup;
    const size_t end = std::min(begin + kStreamGroup, experts.size());
    HEARTH_RETURN_IF_ERROR(computed_[place].HoldBack(copies_.view()));
    if (group == 0) HEARTH_RETURN_IF_ERROR(first_.Record(copies_.view()));
    for (size_t i = begin; i < end; ++i) {
      HEARTH_CHECK(experts[i].bytes.size() <= blob_bytes_max_);
      HEARTH_RETURN_IF_ERROR(Copy(experts[i].bytes, OffsetBytes(i)));
    }
    HEARTH_RETURN_IF_ERROR(copied_[place].Record(copies_.view()));
    if (group + 1 == group_count) HEARTH_RETURN_IF_ERROR(last_.Record(copies_.view()));
    HEARTH_RETURN_IF_ERROR(copied_[place].HoldBack(compute_stream));
    HEARTH_RETURN_IF_ERROR(compute(group));
    HEARTH_RETURN_IF_ERROR(computed_[place].Record(compute_stream));
  }
  next_ = (next_ + group_count) % kGroups;
  return absl::OkStatus();
}

absl::StatusOr<double> StreamRing::Seconds() const {
  return UniqueEvent::SecondsBetween(first_, last_);
}

}  // namespace hearth
