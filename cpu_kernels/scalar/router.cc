// Top-k choice. Contract: ops/router.h.
#include <algorithm>
#include <bit>

#include "cpu_kernels/scalar/kernels.h"

namespace hearth::scalar {
namespace {

// Orders as the floats do, with -0 equal to +0; not for NaN.
uint32_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 + 0 is +0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace

bool TopK(const TopKArgs& args) {
  for (uint32_t i = 0; i < args.count; ++i) {
    const float value = args.values[i];
    if (value != value) return false;
    // A larger word is a better choice: the value first, then the lower index.
    args.scratch[i] = uint64_t{OrderedBits(value)} << 32 | ~i;
  }
  uint64_t* begin = args.scratch;
  uint64_t* end = args.scratch + args.count;
  uint64_t* chosen_end = begin + args.k;
  const auto better = [](uint64_t a, uint64_t b) { return a > b; };
  if (chosen_end < end) std::nth_element(begin, chosen_end, end, better);
  std::sort(begin, chosen_end, better);
  for (uint32_t r = 0; r < args.k; ++r) args.index[r] = ~static_cast<uint32_t>(args.scratch[r]);
  return true;
}

}  // namespace hearth::scalar
