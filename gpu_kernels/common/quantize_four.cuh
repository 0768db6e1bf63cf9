// Canonical quantisation (cpu_kernels/scalar/quantize.cc) for kernels whose lanes hold four values
// of a block; QuantizeLane of arithmetic.cuh is for one.
#pragma once

#include <cstdint>

#include "gpu_kernels/common/arithmetic.cuh"

namespace hearth {

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
