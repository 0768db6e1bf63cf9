// exp, sigmoid and silu of one fp32 value: the definition that the vector versions (avx2/exp_inl.h,
// avx512/exp_inl.h) repeat bit for bit. Contract: cpu_kernels/ops/elementwise.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "cpu_kernels/ops/exp_coefficients.h"

namespace hearth::scalar {

inline float ExpOf(float v) {
  if (v != v) return v;
  v = v < kExpMin ? kExpMin : v;
  v = v > kExpMax ? kExpMax : v;
  const float t = v * kLog2E + kExpRound;
  const float n = t - kExpRound;
  float r = std::fma(n, -kLn2Hi, v);
  r = std::fma(n, -kLn2Lo, r);
  float p = std::fma(kExpC6, r, kExpC5);
  p = std::fma(p, r, kExpC4);
  p = std::fma(p, r, kExpC3);
  p = std::fma(p, r, kExpC2);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // p * 2^n: n sits in the low bits of t, and adding it to the exponent field cannot leave the
  // normals.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(t) << 23));
}

inline float SigmoidOf(float v) { return 1.0f / (1.0f + ExpOf(-v)); }
inline float SiluOf(float v) { return v * SigmoidOf(v); }

}  // namespace hearth::scalar
