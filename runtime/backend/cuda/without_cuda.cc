// runtime/backend/cuda/cuda_backend.h in a build without CUDA.
#include "gpu_kernels/device/without_cuda.h"
#include "runtime/backend/cuda/cuda_backend.h"

namespace hearth {

absl::StatusOr<CudaBackendBytes> PlanCudaBackend(const ModelGeometry&, uint64_t,
                                                 const CudaBackendOptions&, uint32_t) {
  return WithoutCuda("CUDA backend");
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendDeps&,
                                                           const CudaBackendOptions&,
                                                           const UploadProgress&) {
  return WithoutCuda("CUDA backend");
}

}  // namespace hearth
