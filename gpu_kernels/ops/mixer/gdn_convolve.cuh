// One row of gdn.h before the delta rule: convolution, gates, the factor of an L2 norm. Windows and
// prompts share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/ops/mixer/pass_rows.cuh"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"

namespace hearth {

struct ConvolvedVector {
  float4 x;    // silu(conv)
  float4 row;  // the projection
};

// Vector i of the row at `place`; `row` points to its projection. `conv` (taps, channels). No
// branch stands between the loads, so that those of several calls are under way together.
__device__ inline ConvolvedVector Convolve(const GpuPassTable& pass, const RowPlace& place,
                                           const float* row, const float* ring, const float* conv,
                                           uint32_t taps, uint32_t channels, uint32_t i) {
  constexpr float4 kZero = {0, 0, 0, 0};
  float4 acc = kZero;
  float4 v = kZero;
#pragma unroll 4
  for (uint32_t tap = 0; tap < taps; ++tap) {
    const float* from = EarlierRow(pass, place, taps - 1 - tap, row, ring, channels);
    const float4 w = LoadVector(conv, size_t{tap} * (channels / 4) + i);
    v = from != nullptr ? LoadVector(from, i) : kZero;
    acc = {__fmaf_rn(w.x, v.x, acc.x), __fmaf_rn(w.y, v.y, acc.y), __fmaf_rn(w.z, v.z, acc.z),
           __fmaf_rn(w.w, v.w, acc.w)};
  }
  return {MapVector(acc, [](float x) { return SiluOf(x); }), v};
}

// 1 / sqrt(sum + epsilon) * scale, as L2NormArgs (cpu_kernels/ops/gdn.h).
__device__ inline float L2Factor(float sum, float scale) {
  constexpr float kL2Epsilon = 1e-6f;
  return __fmul_rn(__fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, kL2Epsilon))), scale);
}

__device__ inline float QueryScale(uint32_t key_dim) {
  return __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(key_dim)));
}

// g = -exp(a_log) * softplus(a + dt_bias).
__device__ inline float LogDecayOf(float a, float a_log, float dt_bias) {
  const float x = __fadd_rn(a, dt_bias);
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  return __fmul_rn(-expf(a_log), softplus);
}

}  // namespace hearth
