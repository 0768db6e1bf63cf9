#include "gpu_kernels/device/device_buffer.h"

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

absl::Status CheckRange(const DeviceBuffer& buffer, uint64_t offset_bytes, uint64_t bytes) {
  if (offset_bytes <= buffer.bytes() && bytes <= buffer.bytes() - offset_bytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat("copy of ", bytes, " bytes at ", offset_bytes,
                                            ": the device buffer has ", buffer.bytes()));
}

}  // namespace

void DeviceMemoryTraits::Close(Type memory) { (void)cudaFree(memory); }

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(GpuId gpu, uint64_t bytes) {
  HEARTH_CHECK(bytes > 0);
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  void* memory = nullptr;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaMalloc(&memory, bytes), FormatBytes(bytes) + " on the GPU"));
  return DeviceBuffer(gpu, UniqueHandle<DeviceMemoryTraits>(static_cast<std::byte*>(memory)),
                      bytes);
}

absl::Status CopyToDevice(std::span<const std::byte> from, const DeviceBuffer& to,
                          uint64_t offset_bytes, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckRange(to, offset_bytes, from.size()));
  HEARTH_RETURN_IF_ERROR(SelectGpu(to.gpu()));
  return CudaStatus(cudaMemcpyAsync(to.data() + offset_bytes, from.data(), from.size(),
                                    cudaMemcpyHostToDevice, stream.get()),
                    "copy to the GPU");
}

absl::Status CopyToHost(const DeviceBuffer& from, uint64_t offset_bytes, std::span<std::byte> to,
                        CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckRange(from, offset_bytes, to.size()));
  HEARTH_RETURN_IF_ERROR(SelectGpu(from.gpu()));
  return CudaStatus(cudaMemcpyAsync(to.data(), from.data() + offset_bytes, to.size(),
                                    cudaMemcpyDeviceToHost, stream.get()),
                    "copy from the GPU");
}

absl::Status FillBytes(const DeviceBuffer& buffer, std::byte value, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(buffer.gpu()));
  return CudaStatus(
      cudaMemsetAsync(buffer.data(), std::to_integer<int>(value), buffer.bytes(), stream.get()),
      "fill");
}

}  // namespace hearth
