// Host memory that a GPU reads and writes where it lies: copies from it run beside everything else,
// at the full rate of the link, and kernels reach it through its device address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

struct PinnedMemoryTraits {
  using Type = std::byte*;
  static constexpr Type kInvalid = nullptr;
  static void Close(Type memory);
};

// Allocated pinned and mapped, for every GPU of the process. Zeroed. 4 KiB-aligned.
class PinnedBuffer {
 public:
  // ResourceExhausted when the system pins no more. `bytes` > 0.
  static absl::StatusOr<PinnedBuffer> Create(GpuId gpu, uint64_t bytes);
  std::span<std::byte> data() const { return {memory_.get(), bytes_}; }
  std::byte* device_data() const {
    return device_;
  }  // the same bytes, as kernels of `gpu` see them
  uint64_t bytes() const { return bytes_; }

 private:
  PinnedBuffer(UniqueHandle<PinnedMemoryTraits> memory, std::byte* device, uint64_t bytes)
      : memory_(std::move(memory)), device_(device), bytes_(bytes) {}
  UniqueHandle<PinnedMemoryTraits> memory_;
  std::byte* device_ = nullptr;
  uint64_t bytes_ = 0;
};

struct RegistrationTraits {
  using Type = std::byte*;  // where the registered range begins
  static constexpr Type kInvalid = nullptr;
  static void Close(Type range);
};

// Memory of somebody else, pinned while this lives; that somebody keeps it mapped for as long.
class RegisteredMemory {
 public:
  static constexpr uint64_t kAlignBytes = 4096;  // of a range: its begin and its length

  // Pins `range` for every GPU of the process. kReadOnly: memory that this process may not write.
  // ResourceExhausted or FailedPrecondition when the system refuses, with what to do about it;
  // InvalidArgument for a range that is not aligned or empty. A part of it that is pinned already
  // is refused too.
  enum class Access : uint8_t { kReadOnly, kReadWrite };
  static absl::StatusOr<RegisteredMemory> Create(GpuId gpu, std::span<const std::byte> range,
                                                 Access access);
  std::span<const std::byte> range() const { return range_; }
  const std::byte* device_data() const { return device_; }  // as kernels of `gpu` see it

 private:
  RegisteredMemory(UniqueHandle<RegistrationTraits> registration, std::span<const std::byte> range,
                   const std::byte* device)
      : registration_(std::move(registration)), range_(range), device_(device) {}
  UniqueHandle<RegistrationTraits> registration_;
  std::span<const std::byte> range_;
  const std::byte* device_ = nullptr;
};

}  // namespace hearth
