// RMS and L2 normalisation, scalar: the definition. Contracts: ops/elementwise.h, ops/gdn.h.
#include <cmath>

#include "cpu_kernels/scalar/kernels.h"
#include "cpu_kernels/scalar/lane_sum.h"

namespace hearth::scalar {

void RmsNorm(const RmsNormArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    for (uint32_t begin = 0; begin < args.cols; begin += args.group) {
      const float* x = args.x + size_t{t} * args.x_stride + begin;
      const float* w = args.w + begin % args.w_count;
      float* y = args.y + size_t{t} * args.y_stride + begin;
      const float mean = DotOf(x, x, args.group) / static_cast<float>(args.group);
      const float factor = 1.0f / std::sqrt(mean + args.epsilon);
      for (uint32_t j = 0; j < args.group; ++j) {
        const float weight = args.weight == NormWeight::kOnePlus ? 1.0f + w[j] : w[j];
        y[j] = (x[j] * factor) * weight;
      }
    }
  }
}

void L2Norm(const L2NormArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    for (uint32_t head = 0; head < args.heads; ++head) {
      float* x = args.x + size_t{t} * args.x_stride + size_t{head} * args.dim;
      const float factor = (1.0f / std::sqrt(DotOf(x, x, args.dim) + 1e-6f)) * args.scale;
      for (uint32_t j = 0; j < args.dim; ++j) x[j] = x[j] * factor;
    }
  }
}

}  // namespace hearth::scalar
