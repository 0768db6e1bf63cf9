// fp32 rows as int8: the definition. Contracts: cpu_kernels/ops/activation.h, ops/xt.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "cpu_kernels/scalar/kernels.h"
#include "pack/format/xt_matrix.h"

namespace hearth::scalar {
namespace {

// max|x| / 127. As integers, magnitudes keep their order and NaN is the largest.
float RatioOf(const float* x, uint32_t count) {
  uint32_t magnitude_bits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    magnitude_bits = std::max(magnitude_bits, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  }
  return std::bit_cast<float>(magnitude_bits) / 127.0f;
}

float BlockScale(const float* x, uint32_t count) {
  const auto bits = std::bit_cast<uint32_t>(RatioOf(x, count)) & kScaleMantissaMask;
  const auto s = std::bit_cast<float>(bits);
  return s < kScaleMin ? 0.0f : s;
}

int8_t Quantize(float x, float s) {
  float rounded = s != 0 ? std::nearbyint(x / s) : 0.0f;
  rounded = rounded > -127.0f ? rounded : -127.0f;
  rounded = rounded < 127.0f ? rounded : 127.0f;
  return static_cast<int8_t>(rounded);
}

// One block of `count` values, 1 to 32; the rest of the block counts as zero.
void QuantizeBlock(const float* x, uint32_t count, int8_t* q, float* scale, int32_t* sum16) {
  const float s = BlockScale(x, count);
  *scale = s;
  sum16[0] = 0;
  sum16[1] = 0;
  for (uint32_t i = 0; i < kActivationBlockValues; ++i) {
    q[i] = i < count ? Quantize(x[i], s) : int8_t{0};
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

void RotateQuantizeRows(const RotateQuantizeArgs& args) {
  for (size_t t = 0; t < args.rows; ++t) {
    std::copy_n(args.x + t * args.x_stride, args.cols, args.scratch);
    RotateXt(std::span(args.scratch, args.cols));
    const float s = RatioOf(args.scratch, args.cols);
    int8_t* q = args.q + t * args.cols;
    int32_t sum = 0;
    for (uint32_t i = 0; i < args.cols; ++i) {
      q[i] = Quantize(args.scratch[i], s);
      sum += q[i];
    }
    args.scale[t] = s;
    args.sum[t] = sum;
  }
}

}  // namespace hearth::scalar
