// What every expert kernel's case has on a GPU: the experts with their lists, and a workspace whose
// end is watched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/ops/expert_ffn.h"
#include "tests/gpu_kernels/device_copies.h"

namespace hearth {

struct ExpertsOnGpu {
  std::vector<ExpertFfnItem> host_items;
  DeviceBuffer blobs, items, entries;

  // Of an ExpertCase. `copies`: how often the blobs lie in memory, each with items of its own, for
  // benchmarks that must not meet them in a cache.
  template <class Case>
  static absl::StatusOr<ExpertsOnGpu> Create(const Case& c, const UniqueStream& stream,
                                             uint32_t copies = 1) {
    const uint64_t stride = c.layout.stride_bytes();
    HEARTH_ASSIGN_OR_RETURN(
        DeviceBuffer blobs,
        DeviceBuffer::Create(stream.view().gpu(), stride * c.blobs.size() * copies));
    std::vector<ExpertFfnItem> host_items;
    for (size_t i = 0; i < c.blobs.size() * copies; ++i) {
      const size_t which = i % c.blobs.size();
      HEARTH_RETURN_IF_ERROR(CopyToDevice({c.blobs[which].data(), c.layout.blob_bytes()}, blobs,
                                          i * stride, stream.view()));
      host_items.push_back({blobs.data() + i * stride, c.item_begin[which],
                            c.item_begin[which + 1] - c.item_begin[which]});
    }
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer items, DeviceCopy(host_items, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer entries, DeviceCopy(c.entries, stream));
    return ExpertsOnGpu{std::move(host_items), std::move(blobs), std::move(items),
                        std::move(entries)};
  }
  const ExpertFfnItem* item_data() const {
    return reinterpret_cast<const ExpertFfnItem*>(items.data());
  }
  const ExpertFfnEntry* entry_data() const {
    return reinterpret_cast<const ExpertFfnEntry*>(entries.data());
  }
};

class GuardedWorkspace {
 public:
  // Filled with the guard's bytes, so that nothing can rely on what it holds.
  static absl::StatusOr<GuardedWorkspace> Create(uint64_t bytes, const UniqueStream& stream) {
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                            DeviceBuffer::Create(stream.view().gpu(), bytes + kGuardBytes));
    HEARTH_RETURN_IF_ERROR(FillBytes(buffer, kGuardByte, stream.view()));
    return GuardedWorkspace(std::move(buffer));
  }
  const DeviceBuffer& buffer() const { return buffer_; }
  std::byte* data() const { return buffer_.data(); }

  template <class T>
  absl::Status Read(uint64_t offset_bytes, std::vector<T>& values,
                    const UniqueStream& stream) const {
    return CopyToHost(buffer_, offset_bytes, std::as_writable_bytes(std::span(values)),
                      stream.view());
  }
  // Waits for `stream`. Internal when the bytes behind the workspace were written.
  absl::Status CheckGuard(const UniqueStream& stream) const {
    std::vector<std::byte> guard(kGuardBytes);
    HEARTH_RETURN_IF_ERROR(Read(buffer_.bytes() - kGuardBytes, guard, stream));
    HEARTH_RETURN_IF_ERROR(stream.Synchronize());
    if (std::any_of(guard.begin(), guard.end(), [](std::byte b) { return b != kGuardByte; })) {
      return absl::InternalError("a write behind the workspace");
    }
    return absl::OkStatus();
  }

 private:
  static constexpr uint64_t kGuardBytes = 256;
  static constexpr std::byte kGuardByte{0xA5};
  explicit GuardedWorkspace(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  DeviceBuffer buffer_;
};

}  // namespace hearth
