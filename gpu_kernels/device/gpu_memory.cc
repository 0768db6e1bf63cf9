#include "gpu_kernels/device/gpu_memory.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kPageBytes = 2_MiB;
constexpr std::byte kFill{0xA5};

}  // namespace

absl::StatusOr<GpuMemory> ReadGpuMemory(GpuId gpu) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  size_t free_bytes = 0, total_bytes = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory of the GPU"));
  return GpuMemory{.free_bytes = free_bytes, .total_bytes = total_bytes};
}

// Every page begins with its number, the rest is filled: the numbers go in and come back by one
// copy each, whose rows are a page apart.
absl::Status CheckDeviceMemory(const DeviceBuffer& buffer, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(FillBytes(buffer, kFill, stream));
  const uint64_t page_count = buffer.bytes() / kPageBytes;
  if (page_count > 0) {
    std::vector<uint64_t> written(page_count), read(page_count);
    for (uint64_t i = 0; i < page_count; ++i) written[i] = i * 0x9E3779B97F4A7C15u + 1;
    HEARTH_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpy2DAsync(buffer.data(), kPageBytes, written.data(), sizeof(uint64_t),
                          sizeof(uint64_t), page_count, cudaMemcpyHostToDevice, stream.get()),
        "writing slots"));
    HEARTH_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpy2DAsync(read.data(), sizeof(uint64_t), buffer.data(), kPageBytes,
                          sizeof(uint64_t), page_count, cudaMemcpyDeviceToHost, stream.get()),
        "reading slots"));
    HEARTH_RETURN_IF_ERROR(
        CudaStatus(cudaStreamSynchronize(stream.get()), "writing and reading slots"));
    for (uint64_t i = 0; i < page_count; ++i) {
      if (read[i] == written[i]) continue;
      return absl::DataLossError(absl::StrCat("memory of the GPU: page ", i, " of ", page_count,
                                              " does not hold what was written to it"));
    }
  }
  return CudaStatus(cudaStreamSynchronize(stream.get()), "writing slots");
}

}  // namespace hearth
