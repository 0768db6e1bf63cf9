// fp32 rows as int8 blocks: the definition. Contract: cpu_kernels/ops/activation.h.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu_kernels/scalar/kernels.h"

namespace hearth::scalar {
namespace {

// One block of `count` values, 1 to 32; the rest of the block counts as zero.
void QuantizeBlock(const float* x, uint32_t count, int8_t* q, float* scale, int32_t* sum16) {
  uint32_t magnitude_bits = 0;  // as integers, magnitudes keep their order and NaN is the largest
  for (uint32_t i = 0; i < count; ++i) {
    magnitude_bits = std::max(magnitude_bits, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  }
  const float s = std::bit_cast<float>(magnitude_bits) / 127.0f;
  *scale = s;
  sum16[0] = 0;
  sum16[1] = 0;
  for (uint32_t i = 0; i < kActivationBlockValues; ++i) {
    float rounded = i < count && s != 0 ? std::nearbyint(x[i] / s) : 0.0f;
    rounded = rounded > -127.0f ? rounded : -127.0f;
    rounded = rounded < 127.0f ? rounded : 127.0f;
    q[i] = static_cast<int8_t>(rounded);
    sum16[i / 16] += q[i];
  }
}

}  // namespace

void QuantizeRows(const QuantizeRowsArgs& args) {
  const size_t blocks = ActivationBlocks(args.cols);
  for (size_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + t * args.x_stride;
    for (size_t b = 0; b < blocks; ++b) {
      const auto first = static_cast<uint32_t>(b * kActivationBlockValues);
      const uint32_t count = std::min(kActivationBlockValues, args.cols - first);
      const size_t block = t * blocks + b;
      QuantizeBlock(x + first, count, args.q + block * kActivationBlockValues, args.scale + block,
                    args.sum16 + block * 2);
    }
  }
}

}  // namespace hearth::scalar
