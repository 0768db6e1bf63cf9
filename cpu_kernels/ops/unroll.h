// Full unrolling of loops with a constant count, so that an array of vectors becomes registers at
// -O2.
#pragma once

#if defined(__clang__)
#define HEARTH_UNROLL _Pragma("unroll")
#else
#define HEARTH_UNROLL _Pragma("GCC unroll 16")
#endif
