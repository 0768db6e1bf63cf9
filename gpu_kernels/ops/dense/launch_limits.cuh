// What a launch asks the CUDA runtime about its kernel and its card. All answers come from tables
// of the runtime: no synchronisation, allowed while a graph is captured.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/stream.h"
#include "runtime/base/status.h"

namespace hearth {

inline absl::StatusOr<GpuLimits> CurrentLimits(GpuId gpu) {
  const auto device = static_cast<int>(gpu.value);
  int multiprocessors = 0;
  int shared_bytes = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                 "multiprocessors of the GPU"));
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      "shared memory of the GPU"));
  return GpuLimits{.multiprocessor_count = static_cast<uint32_t>(multiprocessors),
                   .shared_bytes_per_block_max = static_cast<uint32_t>(shared_bytes)};
}

inline absl::Status AllowSharedBytes(const void* kernel, uint32_t bytes) {
  constexpr uint32_t kSharedBytesWithoutAsking = 48u << 10;
  if (bytes <= kSharedBytesWithoutAsking) return absl::OkStatus();
  return CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)),
                    "shared memory of a kernel");
}

// `starts_early`: beside the launch before it in the stream, where the card can do that.
template <class Args>
absl::Status LaunchKernel(void (*kernel)(Args), uint32_t blocks, uint32_t threads,
                          uint32_t shared_bytes, bool starts_early, CudaStreamView stream,
                          const Args& args) {
  int major = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                        static_cast<int>(stream.gpu().value)),
                 "compute capability of the GPU"));
  constexpr int kMajorThatStartsEarly = 9;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.get();
  config.attrs = &attribute;
  config.numAttrs = starts_early && major >= kMajorThatStartsEarly ? 1 : 0;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, args), "launch of a dense product");
}

// Blocks of threads that a multiprocessor holds at once, at least 1.
inline absl::StatusOr<uint32_t> ResidentBlocks(const void* kernel, uint32_t threads,
                                               uint32_t shared_bytes) {
  int blocks = 0;
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                        &blocks, kernel, static_cast<int>(threads), shared_bytes),
                                    "occupancy of a kernel"));
  return static_cast<uint32_t>(blocks > 0 ? blocks : 1);
}

}  // namespace hearth
