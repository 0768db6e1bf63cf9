#include "runtime/backend/cuda/device_copy.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {

absl::Status CopyAsync(void* to, const void* from, uint64_t bytes, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()),
                    "copy of a pass");
}

}  // namespace hearth
