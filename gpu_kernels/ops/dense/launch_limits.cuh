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

inline absl::StatusOr<bool> HasClusters(GpuId gpu) {
  constexpr int kMajor = 9;  // of the first compute capability that has
  int major = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                        static_cast<int>(gpu.value)),
                 "compute capability of the GPU"));
  return major >= kMajor;
}

inline absl::Status AllowSharedBytes(const void* kernel, uint32_t bytes) {
  constexpr uint32_t kSharedBytesWithoutAsking = 48u << 10;
  if (bytes <= kSharedBytesWithoutAsking) return absl::OkStatus();
  return CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)),
                    "shared memory of a kernel");
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
