// CUDA's errors as Statuses.
#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat(ToAbsl(what), ": ", cudaGetErrorName(error), ": ",
                                                  cudaGetErrorString(error)));
}

absl::Status SelectGpu(GpuId gpu) {
  return CudaStatus(cudaSetDevice(static_cast<int>(gpu.value)), absl::StrCat("GPU ", gpu.value));
}

}  // namespace hearth
