// The kernel of a chain; gpu_kernels/device/launch.cuh is what it is for.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "tests/gpu_kernels/launch_chain.h"

namespace hearth {
namespace {

__global__ void ChainKernel(const uint32_t* from, uint32_t* to, uint32_t count) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kChainTerms; ++i) sum += from[i * (count / kChainTerms)];
  const uint32_t at = blockIdx.x * kChainThreads + threadIdx.x;
  to[at] = 3 * from[count - 1 - at] + sum;
}

}  // namespace

absl::Status LaunchChainLink(const uint32_t* from, uint32_t* to, uint32_t count, bool overlaps,
                             CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t blocks = count / kChainThreads;
  if (overlaps) {
    return LaunchOverlapping("link of a chain", ChainKernel,
                             {.blocks = blocks, .threads = kChainThreads}, stream, from, to, count);
  }
  ChainKernel<<<blocks, kChainThreads, 0, stream.get()>>>(from, to, count);
  return CudaStatus(cudaGetLastError(), "link of a chain");
}

}  // namespace hearth
