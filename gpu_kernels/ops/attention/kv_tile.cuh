// Tiles of cached keys or values in shared memory, as bf16 for tensor cores.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/attention/mma.cuh"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

inline constexpr uint32_t kNoPosition = UINT32_MAX;

// One K/V head of one sequence's cache.
struct KvHead {
  const std::byte* values;  // (context, head_count, head_dim) in the format
  const float* scales;      // (context, head_count) for kInt8
  uint32_t head_count, head, head_dim;

  __device__ size_t HeadAt(uint32_t position) const { return size_t{position} * head_count + head; }
};

// Eight int8 values, exact as bf16.
__device__ inline uint4 Bf16OfInt8(uint2 values) {
  uint32_t out[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t word = j < 2 ? values.x : values.y;
    const auto low = static_cast<int8_t>(word >> (j % 2 * 16));
    const auto high = static_cast<int8_t>(word >> (j % 2 * 16 + 8));
    const __nv_bfloat162 pair =
        __floats2bfloat162_rn(static_cast<float>(low), static_cast<float>(high));
    out[j] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  return {out[0], out[1], out[2], out[3]};
}

// Rows of `kStride` values, `kTile` of them, from position_of(i), or zeros for kNoPosition; and the
// scales of kInt8, which follow the products. All `kThreads` threads call. bf16 arrives
// asynchronously: the caller commits and waits.
template <int kDim, int kStride, int kTile, int kThreads, KvFormat kFormat, class PositionOf>
__device__ inline void LoadKvTile(const KvHead& kv, const PositionOf& position_of,
                                  __nv_bfloat16* to, float* scales) {
  constexpr uint32_t kUnit = 8;  // values that one thread moves
  constexpr uint32_t kUnits = kDim / kUnit;
#pragma unroll 8
  for (uint32_t i = threadIdx.x; i < kTile * kUnits; i += kThreads) {
    const uint32_t d = i % kUnits * kUnit;
    const uint32_t position = position_of(i / kUnits);
    const bool valid = position != kNoPosition && d < kv.head_dim;
    const size_t at = valid ? kv.HeadAt(position) * kv.head_dim + d : 0;
    __nv_bfloat16* const place = to + i / kUnits * kStride + d;
    if constexpr (kFormat == KvFormat::kBf16) {
      CopyAsync16(place, reinterpret_cast<const __nv_bfloat16*>(kv.values) + at, valid);
    } else {
      const uint2 values = valid ? *reinterpret_cast<const uint2*>(kv.values + at) : uint2{0, 0};
      *reinterpret_cast<uint4*>(place) = Bf16OfInt8(values);
    }
  }
  if constexpr (kFormat == KvFormat::kInt8) {
    for (uint32_t i = threadIdx.x; i < kTile; i += kThreads) {
      const uint32_t position = position_of(i);
      scales[i] = position == kNoPosition ? 0.0f : kv.scales[kv.HeadAt(position)];
    }
  }
}

// Four neighbouring values as two bf16 terms each.
__device__ inline void StoreTerms(float4 x, __nv_bfloat16* high, __nv_bfloat16* low) {
  const float values[4] = {x.x, x.y, x.z, x.w};
  alignas(8) __nv_bfloat16 terms[2][4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const Bf16Terms split = SplitBf16(values[j]);
    terms[0][j] = split.high;
    terms[1][j] = split.low;
  }
  *reinterpret_cast<uint2*>(high) = *reinterpret_cast<const uint2*>(terms[0]);
  *reinterpret_cast<uint2*>(low) = *reinterpret_cast<const uint2*>(terms[1]);
}

}  // namespace hearth
