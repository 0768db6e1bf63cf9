// Tensor-core products of bf16 tiles with fp32 sums, m16n8k16, and the loads of their operands from
// shared memory. Rows of a tile are 16-byte aligned.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu_kernels/common/async_copy.cuh"

namespace hearth {

struct MmaA {  // 16 x 16, row-major
  uint32_t x[4];
};
struct MmaB {  // two neighbouring 16 x 8
  uint32_t x[4];
};

// Rows [0, 16), columns [0, 16) of `tile`.
__device__ inline MmaA LoadA(const __nv_bfloat16* tile, uint32_t stride) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t address = SharedAddress(tile + (lane % 16) * stride + lane / 16 * 8);
  MmaA a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a.x[0]), "=r"(a.x[1]), "=r"(a.x[2]), "=r"(a.x[3])
               : "r"(address)
               : "memory");
  return a;
}

// Matrices of eight rows of 16 bytes. Lanes 8 * i to 8 * i + 7 give the addresses of the rows of
// matrix i; a lane receives four bytes of each: bytes lane % 4 * 4 of row lane / 4 or, transposed,
// the two bytes lane / 4 * 2 of row lane % 4 * 2 and of the next.
__device__ inline MmaB LoadMatrices4(const void* row) {
  MmaB b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x[0]), "=r"(b.x[1]), "=r"(b.x[2]), "=r"(b.x[3])
               : "r"(SharedAddress(row))
               : "memory");
  return b;
}
__device__ inline MmaB LoadTransposed4(const void* row) {
  MmaB b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x[0]), "=r"(b.x[1]), "=r"(b.x[2]), "=r"(b.x[3])
               : "r"(SharedAddress(row))
               : "memory");
  return b;
}
__device__ inline uint2 LoadMatrices2(const void* row) {
  uint2 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "r"(SharedAddress(row))
               : "memory");
  return x;
}
__device__ inline uint2 LoadTransposed2(const void* row) {
  uint2 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "r"(SharedAddress(row))
               : "memory");
  return x;
}

// 16 x 8 sums: lane l holds (l / 4, l % 4 * 2 + {0, 1}) and the same eight rows below.
struct MmaSum {
  float x[4] = {};
};

__device__ inline void Multiply(const MmaA& a, uint32_t b0, uint32_t b1, MmaSum* sum) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum->x[0]), "+f"(sum->x[1]), "+f"(sum->x[2]), "+f"(sum->x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}

// x = high + low, to 16 bits of mantissa.
struct Bf16Terms {
  __nv_bfloat16 high;
  __nv_bfloat16 low;
};

__device__ inline Bf16Terms SplitBf16(float x) {
  const __nv_bfloat16 high = __float2bfloat16_rn(x);
  return {high, __float2bfloat16_rn(__fsub_rn(x, __bfloat162float(high)))};
}

__device__ inline uint32_t Pair(__nv_bfloat16 first, __nv_bfloat16 second) {
  return uint32_t{__bfloat16_as_ushort(second)} << 16 | __bfloat16_as_ushort(first);
}

// Two neighbours in two bf16 terms each.
struct PairTerms {
  uint32_t high;
  uint32_t low;
};

__device__ inline PairTerms SplitPair(float first, float second) {
  const Bf16Terms a = SplitBf16(first);
  const Bf16Terms b = SplitBf16(second);
  return {Pair(a.high, b.high), Pair(a.low, b.low)};
}

}  // namespace hearth
