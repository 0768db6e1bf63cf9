#include "gpu_kernels/device/gpu_info.h"

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

std::string ReasonOf(cudaError_t error, const GpuList& list) {
  const std::string runtime = CudaVersionName(list.runtime_version);
  if (error == cudaErrorInsufficientDriver && list.driver_version == 0) {
    return "no NVIDIA driver is installed";
  }
  if (error == cudaErrorInsufficientDriver) {
    return absl::StrCat("the NVIDIA driver serves CUDA ", CudaVersionName(list.driver_version),
                        ", this build needs ", runtime, ": install a newer driver");
  }
  if (error == cudaErrorNoDevice) return "the NVIDIA driver shows no GPU to this process";
  return std::string(CudaStatus(error, "the NVIDIA driver does not answer").message());
}

absl::StatusOr<GpuInfo> InfoOf(int index) {
  cudaDeviceProp properties;
  const std::string what = absl::StrCat("GPU ", index);
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, index), what));
  GpuInfo info;
  info.id = GpuId(static_cast<uint32_t>(index));
  info.name = properties.name;
  info.sm = static_cast<uint32_t>(properties.major * 10 + properties.minor);
  info.has_kernels = ArchitecturesServe(HEARTH_CUDA_ARCHITECTURES, info.sm);
  info.memory_bytes = properties.totalGlobalMem;
  info.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  info.limits = {
      .multiprocessor_count = static_cast<uint32_t>(properties.multiProcessorCount),
      .shared_bytes_per_block_max = static_cast<uint32_t>(properties.sharedMemPerBlockOptin),
      .sm = info.sm};
  return info;
}

}  // namespace

absl::StatusOr<GpuList> ListGpus() {
  GpuList list;
  list.architectures = HEARTH_CUDA_ARCHITECTURES;
  int version = 0;  // CUDA leaves its outputs alone when it fails
  if (cudaDriverGetVersion(&version) == cudaSuccess) {
    list.driver_version = static_cast<uint32_t>(version);
  }
  version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) {
    list.runtime_version = static_cast<uint32_t>(version);
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)CudaStatus(error, "GPUs");  // clears it
    list.reason = ReasonOf(error, list);
    return list;
  }
  for (int i = 0; i < count; ++i) {
    HEARTH_ASSIGN_OR_RETURN(GpuInfo info, InfoOf(i));
    list.gpus.push_back(std::move(info));
  }
  if (list.gpus.empty()) list.reason = ReasonOf(cudaErrorNoDevice, list);
  return list;
}

}  // namespace hearth
