// The canonical arithmetic of experts on a GPU: every rounding is written out, so the bits are
// those of cpu_kernels/scalar/{exp.h,quantize.cc,expert.cc}, which define them.
#pragma once

#include <cstdint>

#include "cpu_kernels/ops/activation.h"
#include "cpu_kernels/ops/exp_coefficients.h"
#include "gpu_kernels/common/nvfp4_codes.h"

namespace hearth {

__device__ inline float ExpOf(float v) {
  if (v != v) return v;
  v = v < kExpMin ? kExpMin : v;
  v = v > kExpMax ? kExpMax : v;
  const float t = __fadd_rn(__fmul_rn(v, kLog2E), kExpRound);
  const float n = __fsub_rn(t, kExpRound);
  float r = __fmaf_rn(n, -kLn2Hi, v);
  r = __fmaf_rn(n, -kLn2Lo, r);
  float p = __fmaf_rn(kExpC6, r, kExpC5);
  p = __fmaf_rn(p, r, kExpC4);
  p = __fmaf_rn(p, r, kExpC3);
  p = __fmaf_rn(p, r, kExpC2);
  p = __fmaf_rn(p, r, 1.0f);
  p = __fmaf_rn(p, r, 1.0f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}

__device__ inline float SigmoidOf(float v) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, ExpOf(-v))); }

__device__ inline float SiluOf(float v) { return __fmul_rn(v, SigmoidOf(v)); }

// max|x| / 127 of magnitudes as integers, which keep their order; NaN is the largest.
__device__ inline float QuantizationRatio(uint32_t magnitude_bits) {
  return __fdiv_rn(__uint_as_float(magnitude_bits), 127.0f);
}

// Scale of a block of 32.
__device__ inline float BlockScaleOf(uint32_t magnitude_bits) {
  const float ratio = QuantizationRatio(magnitude_bits);
  return ratio < kScaleMin ? 0.0f : __uint_as_float(__float_as_uint(ratio) & kScaleMantissaMask);
}

// A value that is not `valid` counts as zero.
__device__ inline int32_t QuantizeValue(float x, float s, bool valid = true) {
  float rounded = valid && s != 0 ? rintf(__fdiv_rn(x, s)) : 0.0f;
  rounded = rounded > -127.0f ? rounded : -127.0f;
  rounded = rounded < 127.0f ? rounded : 127.0f;
  return static_cast<int32_t>(rounded);
}

// What a block of 32 activations becomes; lane i of the warp holds element i.
struct QuantizedLane {
  int32_t q;
  float scale;    // the same in all lanes
  int32_t sum16;  // of the sixteen lanes that this one is among
};

// All 32 lanes call. A lane that is not `valid` lies beyond the end of the row and counts as zero.
__device__ inline QuantizedLane QuantizeLane(float x, bool valid) {
  constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
  const uint32_t magnitude_bits = valid ? __float_as_uint(x) & 0x7FFFFFFFu : 0u;
  const float s = BlockScaleOf(__reduce_max_sync(kAllLanes, magnitude_bits));
  const int32_t q = QuantizeValue(x, s, valid);
  int32_t sum = q;
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  return {q, s, sum};
}

// PTX prmt.b32 in its default mode; __byte_perm would mask the sign bits of the selector away.
__device__ inline uint32_t PermuteBytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

// The eight codes of `word` as kNvfp4Offset + doubled values, one byte each: elements 0, 4, 1, 5 in
// `first`, 2, 6, 3, 7 in `second`.
struct Nvfp4Octet {
  int32_t first;
  int32_t second;
};

__device__ inline Nvfp4Octet DecodeNvfp4(uint32_t word) {
  const uint32_t magnitudes = word & 0x77777777u;
  return {
      static_cast<int32_t>(PermuteBytes(kNvfp4MagnitudeLow, kNvfp4MagnitudeHigh, magnitudes) ^
                           PermuteBytes(kNvfp4SignedLow, kNvfp4SignedHigh, word)),
      static_cast<int32_t>(PermuteBytes(kNvfp4MagnitudeLow, kNvfp4MagnitudeHigh, magnitudes >> 16) ^
                           PermuteBytes(kNvfp4SignedLow, kNvfp4SignedHigh, word >> 16))};
}

// Half of an E4M3 block scale, byte `index` of `codes`; exact. Codes 0 to 0x7E.
__device__ inline float HalfE4m3(uint32_t codes, uint32_t index) {
  return __fmul_rn(__uint_as_float((codes >> (8 * index) & 0xFFu) << 20), kHalfE4m3Factor);
}

// Eight activations q0..q7 in the order of DecodeNvfp4.
__device__ inline uint2 ReorderActivations(uint32_t q0123, uint32_t q4567) {
  return {PermuteBytes(q0123, q4567, 0x5140), PermuteBytes(q0123, q4567, 0x7362)};
}

}  // namespace hearth
