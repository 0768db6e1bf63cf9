// NVFP4 weights for integer tensor cores (nvfp4_addends.h), exact.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/common/nvfp4_addends.h"

namespace hearth {

// The eight codes of `word`, each as two bytes that add up to its doubled value: elements 0, 4, 1,
// 5 in [0], 2, 6, 3, 7 in [1].
struct Nvfp4Addends {
  uint32_t twice[2];
  uint32_t minus[2];
};

__device__ inline Nvfp4Addends DecodeNvfp4Addends(uint32_t word) {
  const uint32_t magnitudes = word & kNvfp4MagnitudeMask;
  return {{PermuteBytes(kNvfp4TwiceLow, kNvfp4TwiceHigh, word),
           PermuteBytes(kNvfp4TwiceLow, kNvfp4TwiceHigh, word >> 16)},
          {PermuteBytes(kNvfp4MinusLow, kNvfp4MinusHigh, magnitudes),
           PermuteBytes(kNvfp4MinusLow, kNvfp4MinusHigh, magnitudes >> 16)}};
}

// Half of two E4M3 block scales, the low two bytes of `codes`; exact. Codes 0 to 0x7E.
__device__ inline float2 HalfE4m3Pair(uint32_t codes) {
  const uint32_t halves = PermuteBytes(codes, 0, 0x4140) << kE4m3ToHalfShift;
  __half2 values;
  memcpy(&values, &halves, sizeof(values));
  const __half factor = __ushort_as_half(kHalfE4m3FactorBits);
  return __half22float2(__hmul2_rn(values, __half2{factor, factor}));
}

}  // namespace hearth
