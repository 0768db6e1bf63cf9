// The launches of gpu_kernels/ops in a build without CUDA.
#include "gpu_kernels/device/without_cuda.h"

#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/link_copy.h"
#include "gpu_kernels/ops/read_probe.h"
#include "gpu_kernels/ops/xt_encode.h"

namespace hearth {

absl::Status LaunchExpertFfn(const ExpertFfnDesc&, const ExpertFfnPlan&, const ExpertFfnArgs&,
                             CudaStreamView) {
  return WithoutCuda("experts on the GPU");
}

absl::Status ResetExpertFfnWorkspace(const DeviceBuffer&, CudaStreamView) {
  return WithoutCuda("experts on the GPU");
}

absl::Status LaunchLinkCopy(const std::byte*, std::byte*, uint64_t, uint32_t, CudaStreamView) {
  return WithoutCuda("uploads by a kernel");
}

absl::Status LaunchReadProbe(const DeviceBuffer&, uint64_t*, const GpuLimits&, CudaStreamView) {
  return WithoutCuda("read rate of the GPU");
}

absl::StatusOr<double> MeasureDeviceReadRate(const GpuInfo&) {
  return WithoutCuda("read rate of the GPU");
}

absl::StatusOr<double> MeasureDeviceCopyRate(const GpuInfo&) {
  return WithoutCuda("copy rate of the GPU");
}

absl::StatusOr<std::unique_ptr<XtGpuEncoder>> XtGpuEncoder::Create(const GpuInfo&, const XtShape&,
                                                                   uint32_t) {
  return WithoutCuda("the XT encoder on the GPU");
}

}  // namespace hearth
