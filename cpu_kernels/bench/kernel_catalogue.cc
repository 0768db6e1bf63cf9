#include "cpu_kernels/bench/kernel_catalogue.h"

namespace hearth {

std::vector<KernelFamily> AllKernelFamilies(const BenchShape& shape) {
  std::vector<KernelFamily> families;
  AddWeightFamilies(shape, &families);
  AddElementwiseFamilies(shape, &families);
  AddMixerFamilies(shape, &families);
  return families;
}

}  // namespace hearth
