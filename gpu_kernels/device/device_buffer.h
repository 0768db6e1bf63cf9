// Device memory with one owner, and the copies that go in and out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

struct DeviceMemoryTraits {
  using Type = std::byte*;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type memory);
};

// `data()` is a device address: the host never reads through it. 256-byte aligned.
class DeviceBuffer {
 public:
  // ResourceExhausted when the card has no room. `bytes` > 0.
  static absl::StatusOr<DeviceBuffer> Create(GpuId gpu, uint64_t bytes);
  GpuId gpu() const { return gpu_; }
  std::byte* data() const { return memory_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  DeviceBuffer(GpuId gpu, UniqueHandle<DeviceMemoryTraits> memory, uint64_t bytes)
      : gpu_(gpu), memory_(std::move(memory)), bytes_(bytes) {}
  GpuId gpu_;
  UniqueHandle<DeviceMemoryTraits> memory_;
  uint64_t bytes_;
};

// Each enqueues on `stream` and returns; host memory stays valid until the stream has passed the
// call. Pinned host memory (pinned_memory.h) is copied beside everything else; any other CUDA
// stages itself, which holds up the caller. OutOfRange when the range does not lie in the buffer.
absl::Status CopyToDevice(std::span<const std::byte> from, const DeviceBuffer& to,
                          uint64_t offset_bytes, CudaStreamView stream);
absl::Status CopyToHost(const DeviceBuffer& from, uint64_t offset_bytes, std::span<std::byte> to,
                        CudaStreamView stream);
absl::Status FillBytes(const DeviceBuffer& buffer, std::byte value, CudaStreamView stream);

}  // namespace hearth
