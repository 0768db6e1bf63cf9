// Pinned host memory that a card reads and writes over the link while the host does: where the two
// meet within a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

struct MappedMemoryTraits {
  using Type = std::byte*;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type memory);
};

// Starts as zeros, page-aligned. Pinning takes about a millisecond for each few MiB.
class MappedBuffer {
 public:
  // ResourceExhausted when the system lets no more memory be pinned. `bytes` > 0.
  static absl::StatusOr<MappedBuffer> Create(GpuId gpu, uint64_t bytes);
  std::span<std::byte> host() const { return {memory_.get(), bytes_}; }
  std::byte* device() const { return device_; }  // the same bytes, as kernels of `gpu` address them
  uint64_t bytes() const { return bytes_; }

 private:
  MappedBuffer(UniqueHandle<MappedMemoryTraits> memory, std::byte* device, uint64_t bytes)
      : memory_(std::move(memory)), device_(device), bytes_(bytes) {}
  UniqueHandle<MappedMemoryTraits> memory_;
  std::byte* device_;
  uint64_t bytes_;
};

}  // namespace hearth
