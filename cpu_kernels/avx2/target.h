// The instruction set of this folder, put on each function instead of on the files (no -mavx2):
// nothing that the linker may share with other objects is compiled for it.
#pragma once

// GCC 12 takes its own _mm512_undefined_ps() for a use of an uninitialised variable; here because
// the first include of immintrin.h decides.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define HEARTH_AVX2 __attribute__((target("avx2,fma,f16c")))
// For the functions of headers and for parts of kernels: internal linkage, always inlined.
#define HEARTH_AVX2_INLINE static inline __attribute__((always_inline, target("avx2,fma,f16c")))
