// One AVX register under the shared bodies of the expert kernels, ops/expert_*_inl.h: a lane for
// each row of half a band.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu_kernels/avx2/exp_inl.h"
#include "cpu_kernels/avx2/target.h"

#define HEARTH_ISA avx2
#define HEARTH_ISA_KERNEL HEARTH_AVX2
#define HEARTH_ISA_INLINE HEARTH_AVX2_INLINE

namespace hearth::avx2 {

using Register = __m256;
inline constexpr uint32_t kRegisterLanes = 8;

HEARTH_AVX2_INLINE Register RegisterZero() { return _mm256_setzero_ps(); }
HEARTH_AVX2_INLINE Register RegisterOf(float v) { return _mm256_set1_ps(v); }
HEARTH_AVX2_INLINE Register RegisterAdd(Register a, Register b) { return _mm256_add_ps(a, b); }
HEARTH_AVX2_INLINE Register RegisterMul(Register a, Register b) { return _mm256_mul_ps(a, b); }
// a * b + c: one rounding
HEARTH_AVX2_INLINE Register RegisterFma(Register a, Register b, Register c) {
  return _mm256_fmadd_ps(a, b, c);
}
// The first `count` lanes, at most all of them.
HEARTH_AVX2_INLINE void RegisterStore(float* out, Register v, uint32_t count) {
  if (count >= kRegisterLanes) return _mm256_storeu_ps(out, v);
  float lanes[kRegisterLanes];
  _mm256_storeu_ps(lanes, v);
  std::memcpy(out, lanes, count * sizeof(float));
}

}  // namespace hearth::avx2
