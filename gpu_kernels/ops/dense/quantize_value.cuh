// Canonical quantisation of single values (cpu_kernels/scalar/quantize.cc), for kernels whose lanes
// hold several values of a block; QuantizeLane of gpu_kernels/common/arithmetic.cuh is for one.
#pragma once

#include <cstdint>

#include "cpu_kernels/ops/activation.h"

namespace hearth {

// max|x| / 127 of magnitudes as integers, which keep their order; NaN is the largest.
__device__ inline float QuantizationRatio(uint32_t magnitude_bits) {
  return __fdiv_rn(__uint_as_float(magnitude_bits), 127.0f);
}

// Scale of a block of 32.
__device__ inline float BlockScaleOf(uint32_t magnitude_bits) {
  const float ratio = QuantizationRatio(magnitude_bits);
  return ratio < kScaleMin ? 0.0f : __uint_as_float(__float_as_uint(ratio) & kScaleMantissaMask);
}

__device__ inline int32_t QuantizeValue(float x, float s) {
  float rounded = s != 0 ? rintf(__fdiv_rn(x, s)) : 0.0f;
  rounded = rounded > -127.0f ? rounded : -127.0f;
  rounded = rounded < 127.0f ? rounded : 127.0f;
  return static_cast<int32_t>(rounded);
}

// Four values as they lie in memory; adds them to `sum`.
__device__ inline char4 QuantizeFour(const float4& x, float s, int32_t* sum) {
  const int32_t q[4] = {QuantizeValue(x.x, s), QuantizeValue(x.y, s), QuantizeValue(x.z, s),
                        QuantizeValue(x.w, s)};
  *sum += q[0] + q[1] + q[2] + q[3];
  return {static_cast<signed char>(q[0]), static_cast<signed char>(q[1]),
          static_cast<signed char>(q[2]), static_cast<signed char>(q[3])};
}

__device__ inline uint32_t MagnitudeBits(const float4& x) {
  constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
  return max(max(__float_as_uint(x.x) & kMagnitude, __float_as_uint(x.y) & kMagnitude),
             max(__float_as_uint(x.z) & kMagnitude, __float_as_uint(x.w) & kMagnitude));
}

}  // namespace hearth
