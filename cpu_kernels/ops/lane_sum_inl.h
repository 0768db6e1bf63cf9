// Shared body: sums over a row by sixteen accumulators (scalar/lane_sum.h is the definition), for
// one or four rows at a time. Compiled once by each instruction set, after its vec16_inl.h.
#pragma once

#include <cstdint>

#include "cpu_kernels/ops/unroll.h"

namespace hearth::HEARTH_ISA {

HEARTH_ISA_INLINE uint32_t PartOf(uint64_t remaining) {
  return remaining < 16 ? static_cast<uint32_t>(remaining) : 16;
}

HEARTH_ISA_INLINE float AddLanes(Vec16 v) {
  const __m128 four = AddToFour(v);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// The sums of four vectors, in order. A transposition makes lane additions into vector additions.
HEARTH_ISA_INLINE __m128 AddLanesOfFour(const Vec16 (&v)[4]) {
  __m128 a = AddToFour(v[0]);
  __m128 b = AddToFour(v[1]);
  __m128 c = AddToFour(v[2]);
  __m128 d = AddToFour(v[3]);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  return _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d));
}

HEARTH_ISA_INLINE float Dot(const float* a, const float* b, uint32_t count) {
  Vec16 acc = Zero();
  uint32_t k = 0;
  for (; k + 16 <= count; k += 16) acc = Fma(Load(a + k), Load(b + k), acc);
  if (k < count) {
    const uint32_t n = count - k;
    acc = FmaPart(LoadPart(a + k, n), LoadPart(b + k, n), acc, n);
  }
  return AddLanes(acc);
}

// Four rows against one: the loads of `a` are shared and four chains hide the latency of the fma.
HEARTH_ISA_INLINE __m128 DotFour(const float* a, const float* const (&rows)[4], uint32_t count) {
  Vec16 acc[4] = {Zero(), Zero(), Zero(), Zero()};
  uint32_t k = 0;
  for (; k + 16 <= count; k += 16) {
    const Vec16 common = Load(a + k);
    HEARTH_UNROLL
    for (int r = 0; r < 4; ++r) acc[r] = Fma(common, Load(rows[r] + k), acc[r]);
  }
  if (k < count) {
    const uint32_t n = count - k;
    const Vec16 common = LoadPart(a + k, n);
    HEARTH_UNROLL
    for (int r = 0; r < 4; ++r) acc[r] = FmaPart(common, LoadPart(rows[r] + k, n), acc[r], n);
  }
  return AddLanesOfFour(acc);
}

}  // namespace hearth::HEARTH_ISA
