// CUDA's errors as Statuses. For sources that are compiled with CUDA only: it names CUDA's types.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

#include "gpu_kernels/device/gpu_info.h"

namespace hearth {

// "<what>: <CUDA's name of the error>: <its sentence>". No memory: ResourceExhausted; no driver or
// no GPU: Unavailable; else Internal. Clears an error that CUDA would report again at the next
// launch.
absl::Status CudaStatus(cudaError_t error, std::string_view what);

// Makes `gpu` the current one of the calling thread.
absl::Status SelectGpu(GpuId gpu);

}  // namespace hearth
