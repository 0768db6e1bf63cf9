// The launches of gpu_kernels/ops in a build without CUDA.
#include "gpu_kernels/device/without_cuda.h"

#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/read_probe.h"

namespace hearth {

absl::Status LaunchExpertFfn(const ExpertFfnDesc&, const ExpertFfnPlan&, const ExpertFfnArgs&,
                             CudaStreamView) {
  return WithoutCuda("experts on the GPU");
}

absl::Status LaunchReadProbe(const DeviceBuffer&, uint64_t*, const GpuLimits&, CudaStreamView) {
  return WithoutCuda("read rate of the GPU");
}

absl::StatusOr<double> MeasureDeviceReadRate(const GpuInfo&) {
  return WithoutCuda("read rate of the GPU");
}

}  // namespace hearth
