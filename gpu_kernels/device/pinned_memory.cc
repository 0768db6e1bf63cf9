#include "gpu_kernels/device/pinned_memory.h"

#include <cstring>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

absl::StatusOr<std::byte*> DeviceAddressOf(std::byte* host) {
  void* device = nullptr;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaHostGetDevicePointer(&device, host, 0), "device address of pinned memory"));
  return static_cast<std::byte*>(device);
}

// CUDA's word for "the system refused to pin it" is that an argument is invalid or that memory is
// out; either way the cause is one of these.
absl::Status WithRemedy(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnavailable) return status;  // no GPU, no driver
  const bool no_memory = status.code() == absl::StatusCode::kResourceExhausted;
  return absl::Status(
      no_memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition,
      absl::StrCat(status.message(),
                   "; raise the limit of locked memory (ulimit -l unlimited, or LimitMEMLOCK of "
                   "the service), free memory, or run with a smaller --ram-budget"));
}

}  // namespace

void PinnedMemoryTraits::Close(Type memory) { (void)cudaFreeHost(memory); }
void RegistrationTraits::Close(Type range) { (void)cudaHostUnregister(range); }

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(GpuId gpu, uint64_t bytes) {
  HEARTH_CHECK(bytes > 0);
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error != cudaSuccess) {
    return WithRemedy(CudaStatus(error, FormatBytes(bytes) + " of pinned memory"));
  }
  UniqueHandle<PinnedMemoryTraits> handle(static_cast<std::byte*>(memory));
  std::memset(memory, 0, bytes);
  HEARTH_ASSIGN_OR_RETURN(std::byte* const device, DeviceAddressOf(handle.get()));
  return PinnedBuffer(std::move(handle), device, bytes);
}

absl::StatusOr<RegisteredMemory> RegisteredMemory::Create(GpuId gpu,
                                                          std::span<const std::byte> range,
                                                          Access access) {
  auto* const begin = const_cast<std::byte*>(range.data());
  if (range.empty() || reinterpret_cast<uintptr_t>(begin) % kAlignBytes != 0 ||
      range.size() % kAlignBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("pinning ", range.size(),
                                                   " bytes of memory: expected whole pages of ",
                                                   kAlignBytes, " bytes"));
  }
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (access == Access::kReadOnly) flags |= cudaHostRegisterReadOnly;
  const cudaError_t error = cudaHostRegister(begin, range.size(), flags);
  if (error != cudaSuccess) {
    return WithRemedy(CudaStatus(error, "pinning " + FormatBytes(range.size())));
  }
  UniqueHandle<RegistrationTraits> registration(begin);
  HEARTH_ASSIGN_OR_RETURN(const std::byte* const device, DeviceAddressOf(begin));
  return RegisteredMemory(std::move(registration), range, device);
}

}  // namespace hearth
