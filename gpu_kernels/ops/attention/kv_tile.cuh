// Tiles of cached keys or values in shared memory, as they lie in the cache, and the operands of
// tensor-core products that are read from them.
//
// int8 becomes bf16, exactly, on the way from shared memory into registers. What one lane reads of
// 16 int8 values are four neighbours, where it would be two pairs of bf16: products over dimensions
// take them in that order on both sides (QueryColumn), and sums over positions have their
// dimensions in that order (StoreSums).
#pragma once

#include <cstdint>

#include "gpu_kernels/common/bf16_mma.cuh"
#include "gpu_kernels/common/copy_groups.cuh"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

inline constexpr uint32_t kNoPosition = UINT32_MAX;
inline constexpr uint32_t kKvTile = 64;  // positions

// One K/V head of one sequence's cache.
struct KvHead {
  const std::byte* values;  // (context, head_count, head_dim) in the format
  const float* scales;      // (context, head_count) for kInt8
  uint32_t head_count, head, head_dim;

  __device__ size_t HeadAt(uint32_t position) const { return size_t{position} * head_count + head; }
};

// Rows of kDim values, 16-byte aligned and spread over the banks. kDim: a multiple of 32.
template <int kDim, KvFormat kFormat>
struct KvTile {
  static constexpr uint32_t kValueBytes = kFormat == KvFormat::kInt8 ? 1 : 2;
  static constexpr uint32_t kStrideBytes = kDim * kValueBytes + 16;
  alignas(16) std::byte data[kKvTile * kStrideBytes];
  float scale[kFormat == KvFormat::kInt8 ? kKvTile : 1];
};

// Asks for the tile of position_of(i), zeros for kNoPosition; all `kThreads` threads call. The
// caller commits and waits.
template <int kThreads, int kDim, KvFormat kFormat, class PositionOf>
__device__ inline void LoadKvTile(const KvHead& kv, const PositionOf& position_of,
                                  KvTile<kDim, kFormat>* tile) {
  using Tile = KvTile<kDim, kFormat>;
  constexpr uint32_t kUnit = 8;  // values that one thread moves: head_dim is a multiple
  constexpr uint32_t kUnits = kDim / kUnit;
  constexpr uint32_t kUnitBytes = kUnit * Tile::kValueBytes;
#pragma unroll 8
  for (uint32_t i = threadIdx.x; i < kKvTile * kUnits; i += kThreads) {
    const uint32_t d = i % kUnits * kUnit;
    const uint32_t position = position_of(i / kUnits);
    const bool valid = position != kNoPosition && d < kv.head_dim;
    const size_t at = valid ? kv.HeadAt(position) * kv.head_dim + d : 0;
    CopyAsync<kUnitBytes>(tile->data + i / kUnits * Tile::kStrideBytes + d * Tile::kValueBytes,
                          kv.values + at * Tile::kValueBytes, valid);
  }
  if constexpr (kFormat == KvFormat::kInt8) {
    for (uint32_t i = threadIdx.x; i < kKvTile; i += kThreads) {
      const uint32_t position = position_of(i);
      const bool valid = position != kNoPosition;
      CopyAsync<4>(tile->scale + i, kv.scales + (valid ? kv.HeadAt(position) : 0), valid);
    }
  }
}

// Two bytes of `values` as bf16: 128 + the low seven bits, less 128 or, for a negative one, 256.
__device__ inline uint32_t Bf16OfInt8(uint32_t values, uint32_t first, uint32_t second) {
  const uint32_t biased = __byte_perm(values, 0x43434343u, 0x4040u | first | second << 8);
  const uint32_t magnitude = biased & 0xFF7FFF7Fu;
  const uint32_t bias = biased & 0xFF80FF80u;
  const __nv_bfloat162 result = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&magnitude),
                                        *reinterpret_cast<const __nv_bfloat162*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&result);
}

// B[k][n] = dimension d + k of position first + n; 16 by 16.
template <int kDim, KvFormat kFormat>
__device__ inline MmaB KeyOperand(const KvTile<kDim, kFormat>& tile, uint32_t first, uint32_t d) {
  using Tile = KvTile<kDim, kFormat>;
  const std::byte* const at = tile.data + first * Tile::kStrideBytes + d * Tile::kValueBytes;
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (kFormat == KvFormat::kBf16) {
    return LoadMatrices4(at + (lane % 8 + lane / 16 * 8) * Tile::kStrideBytes + lane / 8 % 2 * 16);
  } else {
    const uint2 x = LoadMatrices2(at + lane % 16 * Tile::kStrideBytes);
    return {{Bf16OfInt8(x.x, 0, 1), Bf16OfInt8(x.x, 2, 3), Bf16OfInt8(x.y, 0, 1),
             Bf16OfInt8(x.y, 2, 3)}};
  }
}

// Where dimension 4 * i of a product's side that meets KeyOperand lies among its 16 columns, and
// how far dimension 4 * i + 2 lies behind it; each with its neighbour.
template <KvFormat kFormat>
struct QueryColumn {
  static constexpr uint32_t kStep = kFormat == KvFormat::kInt8 ? 2 : 4;
  static constexpr uint32_t kHalf = kFormat == KvFormat::kInt8 ? 8 : 2;
};

// B[k][n] = dimension d + n of position first + k; 16 by 16.
template <int kDim, KvFormat kFormat>
__device__ inline MmaB ValueOperand(const KvTile<kDim, kFormat>& tile, uint32_t first, uint32_t d) {
  using Tile = KvTile<kDim, kFormat>;
  const std::byte* const at = tile.data + first * Tile::kStrideBytes + d * Tile::kValueBytes;
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (kFormat == KvFormat::kBf16) {
    return LoadTransposed4(at + lane % 16 * Tile::kStrideBytes + lane / 16 * 16);
  } else {
    const uint2 x = LoadTransposed2(at + lane % 16 * Tile::kStrideBytes);
    return {{Bf16OfInt8(x.x, 0, 2), Bf16OfInt8(x.y, 0, 2), Bf16OfInt8(x.x, 1, 3),
             Bf16OfInt8(x.y, 1, 3)}};
  }
}

// Row `half` (of this lane's two) of two neighbouring sums over ValueOperand: 16 dimensions from
// `d`, of which the first `dim_end` exist.
template <KvFormat kFormat>
__device__ inline void StoreSums(const MmaSum& left, const MmaSum& right, uint32_t half, uint32_t d,
                                 uint32_t dim_end, float* row) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t i = 2 * half;
  if constexpr (kFormat == KvFormat::kBf16) {
    const uint32_t at = d + lane % 4 * 2;
    if (at < dim_end) *reinterpret_cast<float2*>(row + at) = {left.x[i], left.x[i + 1]};
    if (at + 8 < dim_end) *reinterpret_cast<float2*>(row + at + 8) = {right.x[i], right.x[i + 1]};
  } else {
    const uint32_t at = d + lane % 4 * 4;
    if (at < dim_end) {
      *reinterpret_cast<float4*>(row + at) = {left.x[i], right.x[i], left.x[i + 1], right.x[i + 1]};
    }
  }
}

}  // namespace hearth
