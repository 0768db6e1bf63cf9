// One AVX-512 register under the shared bodies of the expert kernels, ops/expert_*_inl.h: a lane
// for each row of a band.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu_kernels/avx512/exp_inl.h"
#include "cpu_kernels/avx512/target.h"

#define HEARTH_ISA avx512
#define HEARTH_ISA_KERNEL HEARTH_AVX512
#define HEARTH_ISA_INLINE HEARTH_AVX512_INLINE

namespace hearth::avx512 {

using Register = __m512;
inline constexpr uint32_t kRegisterLanes = 16;

HEARTH_AVX512_INLINE Register RegisterZero() { return _mm512_setzero_ps(); }
HEARTH_AVX512_INLINE Register RegisterOf(float v) { return _mm512_set1_ps(v); }
HEARTH_AVX512_INLINE Register RegisterAdd(Register a, Register b) { return _mm512_add_ps(a, b); }
HEARTH_AVX512_INLINE Register RegisterMul(Register a, Register b) { return _mm512_mul_ps(a, b); }
// a * b + c: one rounding
HEARTH_AVX512_INLINE Register RegisterFma(Register a, Register b, Register c) {
  return _mm512_fmadd_ps(a, b, c);
}
// The first `count` lanes, at most all of them.
HEARTH_AVX512_INLINE void RegisterStore(float* out, Register v, uint32_t count) {
  const uint32_t lanes = count >= kRegisterLanes ? 0xFFFFu : (1u << count) - 1;
  _mm512_mask_storeu_ps(out, static_cast<__mmask16>(lanes), v);
}

}  // namespace hearth::avx512
