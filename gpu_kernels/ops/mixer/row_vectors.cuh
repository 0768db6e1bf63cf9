// What the kernels over activation rows share: sums over a warp or a block of threads whose order
// is fixed, and rows as vectors of four values, eight of which make one quantised block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/common/quantize_four.cuh"
#include "gpu_kernels/ops/mixer/quantized_out.h"

namespace hearth {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kAllWarpLanes = 0xFFFFFFFFu;
inline constexpr uint32_t kBlockVectors = kActivationBlockValues / 4;  // of a quantised block
inline constexpr uint32_t kBlockWarpsMax = 32;

template <class T>
__device__ inline T WarpSum(T v) {
#pragma unroll
  for (uint32_t offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    v = v + __shfl_xor_sync(kAllWarpLanes, v, offset);
  }
  return v;
}

// The sum over a whole block of threads, in all of them. `partial`: kBlockWarpsMax values of shared
// memory that no earlier call in flight uses.
template <class T>
__device__ inline T BlockSum(T v, T* partial) {
  v = WarpSum(v);
  if (blockDim.x <= kWarpLanes) return v;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  if (lane == 0) partial[threadIdx.x / kWarpLanes] = v;
  __syncthreads();
  return WarpSum(lane < blockDim.x / kWarpLanes ? partial[lane] : T{0});
}

__device__ inline float4 LoadVector(const float* x, size_t vector) {
  return reinterpret_cast<const float4*>(x)[vector];
}
__device__ inline void StoreVector(float* x, size_t vector, float4 v) {
  reinterpret_cast<float4*>(x)[vector] = v;
}

template <class Fn>
__device__ inline float4 MapVector(float4 a, const Fn& fn) {
  return {fn(a.x), fn(a.y), fn(a.z), fn(a.w)};
}
template <class Fn>
__device__ inline float4 MapVector(float4 a, float4 b, const Fn& fn) {
  return {fn(a.x, b.x), fn(a.y, b.y), fn(a.z, b.z), fn(a.w, b.w)};
}

// acc + the squares of v, in order.
__device__ inline float AddSquares(float4 v, float acc) {
  acc = __fmaf_rn(v.x, v.x, acc);
  acc = __fmaf_rn(v.y, v.y, acc);
  acc = __fmaf_rn(v.z, v.z, acc);
  return __fmaf_rn(v.w, v.w, acc);
}

__device__ inline float NormFactor(float sum, uint32_t count, float epsilon) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(count)), epsilon)));
}

// (x * factor) * (1 + w), as NormWeight::kOnePlus.
__device__ inline float4 NormaliseVector(float4 x, float factor, float4 w) {
  return MapVector(x, w, [factor](float v, float weight) {
    return __fmul_rn(__fmul_rn(v, factor), __fadd_rn(1.0f, weight));
  });
}

// A vector of a block that eight neighbouring lanes hold, the first of them a multiple of eight:
// its four values quantised with the scale of the block, and their sum. All lanes of the warp call.
struct QuantizedVector {
  char4 q;
  float scale;
  int32_t sum;
};
__device__ inline QuantizedVector QuantizeVector(float4 x) {
  uint32_t bits = MagnitudeBits(x);
#pragma unroll
  for (uint32_t offset = kBlockVectors / 2; offset > 0; offset /= 2) {
    bits = max(bits, __shfl_xor_sync(kAllWarpLanes, bits, offset));
  }
  QuantizedVector v;
  v.scale = BlockScaleOf(bits);
  v.sum = 0;
  v.q = QuantizeFour(x, v.scale, &v.sum);
  return v;
}

// Quantises vectors as QuantizeLane does single values: eight neighbouring lanes, the first of them
// a multiple of eight, hold a block; `vector` counts vectors from the start of all rows, each row
// filled up to whole blocks. All lanes of the warp call; a vector beyond its row's end is zero, and
// lanes that are not `store` only take part in the exchange.
__device__ inline void StoreQuantized(const QuantizedOut& out, size_t vector, float4 x,
                                      bool store) {
  const QuantizedVector quantized = QuantizeVector(x);
  int32_t sum = quantized.sum;
  sum += __shfl_xor_sync(kAllWarpLanes, sum, 1);
  sum += __shfl_xor_sync(kAllWarpLanes, sum, 2);
  if (!store) return;
  const size_t block = vector / kBlockVectors;
  const uint32_t in_block = vector % kBlockVectors;
  reinterpret_cast<char4*>(out.q)[vector] = quantized.q;
  if (in_block == 0) out.scale[block] = quantized.scale;
  if (in_block % 4 == 0) out.sum16[block * 2 + in_block / 4] = sum;
}

// Quantises a block whose element `at` (counted from the start of all rows) is the lane's. All
// lanes call.
__device__ inline void StoreQuantizedLane(const QuantizedOut& out, size_t at, float x) {
  const QuantizedLane quantized = QuantizeLane(x, true);
  const size_t block = at / kActivationBlockValues;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  out.q[at] = static_cast<int8_t>(quantized.q);
  if (lane == 0) out.scale[block] = quantized.scale;
  if (lane % 16 == 0) out.sum16[block * 2 + lane / 16] = quantized.sum16;
}

}  // namespace hearth
