// Tensor-core products of one warp (PTX mma.sync, sm_80 and later) and what feeds them. Lane l has
// g = l / 4 and c = l % 4.
#pragma once

#include <cstdint>

#include "gpu_kernels/common/async_copy.cuh"
#include "gpu_kernels/common/nvfp4_codes.h"

namespace hearth {

// d (16 x 8) = a (16 x 32) * b (32 x 8) as integers, returned as the bits of kIntegerFloat + d.
//   a[0], a[1]: rows g, g + 8 at k = 4c..4c+3; a[2], a[3]: the same rows at k + 16
//   b0, b1: column g at k = 4c..4c+3 and k + 16
// Any four values of a and b that stand at the same k may stand in for those.
//   d[0], d[1]: row g, columns 2c, 2c + 1; d[2], d[3]: row g + 8
__device__ inline void MultiplyInt8(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    int32_t (&d)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %10, %10, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(kIntegerFloatBits));
}

// The integer that MultiplyInt8 returned, |d| < 2^22.
__device__ inline float ExactFloat(int32_t bits) {
  return __fsub_rn(__int_as_float(bits), kIntegerFloat);
}

// d (16 x 8) += a (16 x 16) * b (16 x 8), bf16 products and fp32 sums; registers hold two values.
//   a[0], a[1]: rows g, g + 8 at k = 2c, 2c + 1; a[2], a[3]: the same rows at k + 8
//   b[0], b[1]: column g at k = 2c, 2c + 1 and k + 8
__device__ inline void MultiplyAddBf16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                       float (&d)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 16-byte matrices of shared memory; lane l names row l % 8 of matrix l / 8, and gets the
// four bytes c of row g of each.
__device__ inline void LoadMatrices(uint32_t address, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// 16 bytes into shared memory, not waited for.
__device__ inline void CopyAhead16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros when not `valid`: `from` is not read.
__device__ inline void CopyAheadOrZero16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void CopyAhead4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the latest kPending groups of this thread have arrived.
template <int kPending>
__device__ inline void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace hearth
