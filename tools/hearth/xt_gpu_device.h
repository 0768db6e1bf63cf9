// The first GPU as a place where XT matrices are encoded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/xt_encode.h"
#include "pack/quant/xt_device.h"

namespace hearth {

class XtGpuDevice final : public XtMatrixDevice {
 public:
  // Unavailable, with the reason, where there is no GPU; Unimplemented in a build without CUDA.
  static absl::StatusOr<std::unique_ptr<XtGpuDevice>> Create();

  bool Takes(const XtShape& shape) const override;
  absl::Status Encode(const XtShape& shape, std::span<const Job> jobs) override;
  const GpuInfo& gpu() const { return gpu_; }

 private:
  using Shape = std::tuple<uint32_t, uint32_t, uint32_t>;  // rows, cols, bits

  explicit XtGpuDevice(const GpuInfo& gpu) : gpu_(gpu) {}

  const GpuInfo gpu_;
  std::mutex mutex_;
  std::map<Shape, std::unique_ptr<XtGpuEncoder>> encoders_;
};

}  // namespace hearth
