// The numbers of the one exp of all kernels (ops/elementwise.h). Every instruction set evaluates,
// in fp32:
//   v = clamp(v, kExpMin, kExpMax)
//   t = v * kLog2E + kExpRound;  n = t - kExpRound       (round-half-to-even of v * log2 e)
//   r = fma(n, -kLn2Hi, v);  r = fma(n, -kLn2Lo, r)
//   p = 1 + r + c2 r^2 + ... + c6 r^6 by Horner's rule with fma;  exp = p * 2^n
// Inside the clamp the result is a normal number, so the scaling by 2^n is exact. A NaN gives a
// NaN.
//
// c2..c6 minimise the largest relative error of the polynomial on |r| <= ln2 / 2 with c0 = c1 = 1
// (Remez exchange, then rounded to fp32): 3.7e-9, far below the fp32 rounding of the evaluation.
#pragma once

namespace hearth {

inline constexpr float kExpMin = -87.3f;
inline constexpr float kExpMax = 88.7f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kExpRound = 0x1.8p23f;
inline constexpr float kLn2Hi = 0x1.62e4p-1f;     // 17 bits: n * kLn2Hi is exact
inline constexpr float kLn2Lo = 0x1.7f7d1cp-20f;  // ln 2 - kLn2Hi
inline constexpr float kExpC2 = 0x1.fffffcp-2f;
inline constexpr float kExpC3 = 0x1.555492p-3f;
inline constexpr float kExpC4 = 0x1.5558f2p-5f;
inline constexpr float kExpC5 = 0x1.123a2p-7f;
inline constexpr float kExpC6 = 0x1.6a23dp-10f;

}  // namespace hearth
