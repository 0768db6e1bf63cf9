// The name of a CUDA version number, with CUDA and without.
#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/gpu_info.h"

namespace hearth {

std::string CudaVersionName(uint32_t version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace hearth
