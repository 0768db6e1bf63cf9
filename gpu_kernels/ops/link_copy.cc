// The choice of gpu_kernels/ops/link_copy.h.
#include "gpu_kernels/ops/link_copy.h"

namespace hearth {

UploadWay ChooseUploadWay(const LinkRates& rates) {
  constexpr double kWorthwhile = 1.05;
  return rates.kernel > rates.copy_engine * kWorthwhile ? UploadWay::kKernel
                                                        : UploadWay::kCopyEngine;
}

}  // namespace hearth
