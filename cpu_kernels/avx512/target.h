// The instruction set of this folder, put on each function instead of on the files (no -mavx512f):
// nothing that the linker may share with other objects is compiled for it.
#pragma once

// GCC 12 takes its own _mm512_undefined_ps() for a use of an uninitialised variable.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)  // which does not know the second name
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#define HEARTH_AVX512_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"
#define HEARTH_AVX512 __attribute__((target(HEARTH_AVX512_TARGET)))
// For the functions of headers and for parts of kernels: internal linkage, always inlined.
#define HEARTH_AVX512_INLINE \
  static inline __attribute__((always_inline, target(HEARTH_AVX512_TARGET)))

// The tier of avx512vbmi. Functions of HEARTH_AVX512_INLINE may be called from its functions.
#define HEARTH_AVX512VBMI_TARGET HEARTH_AVX512_TARGET ",avx512vbmi,avx512vbmi2,gfni"
#define HEARTH_AVX512VBMI __attribute__((target(HEARTH_AVX512VBMI_TARGET)))
#define HEARTH_AVX512VBMI_INLINE \
  static inline __attribute__((always_inline, target(HEARTH_AVX512VBMI_TARGET)))
