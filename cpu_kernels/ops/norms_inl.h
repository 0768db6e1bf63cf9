// Shared body of RmsNorm and L2Norm (definition: scalar/norms.cc). Compiled once by each
// instruction set, after its vec16_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/elementwise.h"
#include "cpu_kernels/ops/gdn.h"
#include "cpu_kernels/ops/lane_sum_inl.h"

namespace hearth::HEARTH_ISA {

HEARTH_ISA_INLINE float SquareRoot(float v) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(v))); }

HEARTH_ISA_INLINE void SquareSums(const float* const (&x)[4], uint32_t count, float* sum) {
  Vec16 acc[4] = {Zero(), Zero(), Zero(), Zero()};
  uint32_t k = 0;
  for (; k + 16 <= count; k += 16) {
    HEARTH_UNROLL
    for (int r = 0; r < 4; ++r) {
      const Vec16 v = Load(x[r] + k);
      acc[r] = Fma(v, v, acc[r]);
    }
  }
  if (k < count) {
    HEARTH_UNROLL
    for (int r = 0; r < 4; ++r) {
      const Vec16 v = LoadPart(x[r] + k, count - k);
      acc[r] = FmaPart(v, v, acc[r], count - k);
    }
  }
  _mm_storeu_ps(sum, AddLanesOfFour(acc));
}

HEARTH_ISA_INLINE void ScaleGroup(const RmsNormArgs& args, const float* x, const float* w,
                                  float square_sum, float* y) {
  const float mean = square_sum / static_cast<float>(args.group);
  const Vec16 factor = Broadcast(1.0f / SquareRoot(mean + args.epsilon));
  const Vec16 one = Broadcast(1.0f);
  for (uint32_t j = 0; j < args.group; j += 16) {
    const uint32_t n = PartOf(args.group - j);
    Vec16 weight = LoadPart(w + j, n);
    if (args.weight == NormWeight::kOnePlus) weight = Add(one, weight);
    StorePart(y + j, Mul(Mul(LoadPart(x + j, n), factor), weight), n);
  }
}

// Four groups at a time (of one row or of several): the sum of one group is a single chain of fma.
HEARTH_ISA_KERNEL void RmsNorm(const RmsNormArgs& args) {
  const uint32_t groups = args.cols / args.group;
  const uint64_t count = uint64_t{args.rows} * groups;
  for (uint64_t begin = 0; begin < count; begin += 4) {
    const uint32_t n = count - begin < 4 ? static_cast<uint32_t>(count - begin) : 4;
    const float* x[4];
    float sum[4];
    for (uint32_t r = 0; r < 4; ++r) {
      const uint64_t at = begin + (r < n ? r : 0);
      x[r] = args.x + at / groups * args.x_stride + at % groups * args.group;
    }
    if (n == 1) {
      sum[0] = Dot(x[0], x[0], args.group);
    } else {
      SquareSums(x, args.group, sum);
    }
    for (uint32_t r = 0; r < n; ++r) {
      const uint64_t at = begin + r;
      const uint32_t column = static_cast<uint32_t>(at % groups) * args.group;
      ScaleGroup(args, x[r], args.w + column % args.w_count, sum[r],
                 args.y + at / groups * args.y_stride + column);
    }
  }
}

HEARTH_ISA_KERNEL void L2Norm(const L2NormArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    for (uint32_t head = 0; head < args.heads; ++head) {
      float* x = args.x + size_t{t} * args.x_stride + size_t{head} * args.dim;
      const float sum = Dot(x, x, args.dim);
      const Vec16 factor = Broadcast((1.0f / SquareRoot(sum + 1e-6f)) * args.scale);
      for (uint32_t j = 0; j < args.dim; j += 16) {
        const uint32_t n = PartOf(args.dim - j);
        StorePart(x + j, Mul(LoadPart(x + j, n), factor), n);
      }
    }
  }
}

}  // namespace hearth::HEARTH_ISA
