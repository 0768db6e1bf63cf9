// The kernel of gpu_kernels/ops/link_copy.h.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/link_copy.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 512;
constexpr int kLoadsInFlight = 4;  // of 16 bytes a lane: the link answers after microseconds

__global__ void __launch_bounds__(kThreads)
    LinkCopyKernel(const uint4* from, uint4* to, uint64_t count) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kLoadsInFlight - 1) * stride < count; i += kLoadsInFlight * stride) {
    uint4 v[kLoadsInFlight];
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) v[j] = __ldcs(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) to[i + j * stride] = v[j];
  }
  for (; i < count; i += stride) to[i] = __ldcs(from + i);
}

}  // namespace

absl::Status LaunchLinkCopy(const std::byte* from, std::byte* to, uint64_t bytes, uint32_t blocks,
                            CudaStreamView stream) {
  HEARTH_CHECK(bytes % sizeof(uint4) == 0 && blocks > 0);
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  LinkCopyKernel<<<blocks, kThreads, 0, stream.get()>>>(
      reinterpret_cast<const uint4*>(from), reinterpret_cast<uint4*>(to), bytes / sizeof(uint4));
  return CudaStatus(cudaGetLastError(), "launch of an upload");
}

}  // namespace hearth
