// What one warp of gpu_kernels/ops/expert_ffn_stream.h multiplies: a pair of segments of one band
// (16 weight rows) in shared memory by kRows rows of x in registers.
//
// One step takes sub-block b of both segments in one product of 16 x 32 by 32 x 8 bytes (PTX
// mma.m16n8k32), lane = 4 g + c:
//   k           8 values of lane c: segment c / 2 of the pair, line c % 2 of the sub-block
//   row of a    g and g + 8 are weight rows 2p and 2p + 1 with p = g for the first segment, g ^ 4
//               for the second: the two segments' words then lie on different banks
//   column of b one (segment, row of x), zero where k belongs to the other segment, so that a
//               column holds its own segment's sum alone; column 2c is of segment c / 2
// So a lane has the codes, the scales and the sums of one and the same segment and weight rows.
// Integer sums are exact, so their order does not matter; what follows is the canonical arithmetic
// of cpu_kernels/ops/expert.h, sub-block by sub-block.
//
// Bound by integer instructions: a step of 512 products takes 15 of the half-rate kind, of 29 with
// two rows of x and 35 with four.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gpu_kernels/common/nvfp4_addends.cuh"
#include "gpu_kernels/ops/expert_ffn_stream.h"

namespace hearth {

// The lane, read anew: what is computed from it is computed again in every round, which is cheaper
// than registers that a loop would keep it in.
__device__ inline uint32_t FfnLaneIndex() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// A lane's place, the same for codes, scales and sums.
struct FfnLane {
  uint32_t segment;  // of the pair
  uint32_t line;
  uint32_t p;  // weight rows 2p and 2p + 1 of the band

  __device__ static FfnLane Of(uint32_t lane) {
    const uint32_t segment = lane % 4 / 2;
    return {segment, lane % 2, lane / 4 ^ 4 * segment};
  }
};

// Rows of x, 2 or 4, that a warp multiplies at once.
template <int kRows>
struct FfnColumns {
  static constexpr int kLaneRows = kRows == 2 ? 1 : 2;  // that a lane has sums of

  // Row of x of column lane / 4.
  __device__ static uint32_t ColumnRow(uint32_t lane) {
    const uint32_t column = lane / 4;
    return kRows == 4 ? column % 4 : column % 4 / 2;
  }
  // Whether the lane's k are of the segment of its column.
  __device__ static bool IsOwn(uint32_t lane) { return lane / 16 == FfnLane::Of(lane).segment; }
  // Where the lane's sums are of.
  __device__ static FfnLane SumPlace(uint32_t lane) {
    const uint32_t segment = lane % 4 / 2;
    return {segment, 0, lane / 4 ^ 4 * segment};
  }
  // Row of x of the lane's i-th sums.
  __device__ static uint32_t SumRow(uint32_t lane, uint32_t i) { return lane % 2 * kLaneRows + i; }
};

// The rows of x over one pair of segments, as the lane needs them: of its column and its k, zero
// where IsOwn() says no. Their scales stay staged: [32 values of the pair][row].
struct FfnX {
  uint2 q[kSegmentSubBlocks];
};

template <int kRows>
struct FfnSums {
  // Of each row of x and weight row, 2p and 2p + 1.
  float of[FfnColumns<kRows>::kLaneRows][2];
};

// All lanes of a warp. `row_of(t)` is where row t < rows of x lies in q and scale; `stage` is the
// warp's, kFfnXStageBytes: every value crosses the card's cache once for the warp.
template <int kRows, class RowOf>
__device__ inline void LoadFfnX(const int8_t* q, const float* scale, uint32_t cols, uint32_t pair,
                                uint32_t lane, uint32_t rows, const RowOf& row_of, std::byte* stage,
                                FfnX* x) {
  constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
  constexpr uint32_t kScales = kPairSubBlocks / 2;  // of a row
  constexpr int kFfnXLoadRows = 2;
  constexpr int kLineLoads = (kPairSubBlocks + 31) / 32;
  constexpr int kScaleLoads = (kRows * kScales + 31) / 32;
  const uint32_t begin = pair * kPairSubBlocks;
  const uint32_t count = min(kPairSubBlocks, cols / kNvfp4BlockValues - begin);
  const uint32_t blocks = (cols + kActivationBlockValues - 1) / kActivationBlockValues;
  const uint32_t own_row = row_of(min(lane, rows - 1));
  const auto* lines = reinterpret_cast<const uint4*>(q) + begin;
  const float* scales = scale + begin / 2;
  __syncwarp();
  // Loads go past the first-level cache: other blocks of threads write h.
  float loaded_scales[kScaleLoads];
#pragma unroll
  for (int i = 0; i < kScaleLoads; ++i) {
    const uint32_t at = i * 32 + lane;
    const uint32_t t = min(at / kScales, kRows - 1u);
    const size_t row = __shfl_sync(kAllLanes, own_row, t);
    loaded_scales[i] = at % kScales * 2 < count ? __ldcg(scales + row * blocks + at % kScales) : 0;
  }
  auto* staged_scales = reinterpret_cast<float*>(stage + kFfnXStageLineBytes);
#pragma unroll
  for (int i = 0; i < kScaleLoads; ++i) {
    const uint32_t at = i * 32 + lane;
    if (at < kRows * kScales) staged_scales[at % kScales * kRows + at / kScales] = loaded_scales[i];
  }
  const FfnLane place = FfnLane::Of(lane);
  const bool own = FfnColumns<kRows>::IsOwn(lane);
  const uint32_t column_row = FfnColumns<kRows>::ColumnRow(lane);
#pragma unroll
  for (uint32_t first = 0; first < kRows; first += kFfnXLoadRows) {
    // As many rows at once as there are registers for.
    asm volatile("" ::: "memory");
    uint4 loaded[kFfnXLoadRows][kLineLoads];
#pragma unroll
    for (int i = 0; i < kFfnXLoadRows * kLineLoads; ++i) {
      const uint32_t at = i % kLineLoads * 32 + lane;
      const size_t row = __shfl_sync(kAllLanes, own_row, first + i / kLineLoads);
      loaded[i / kLineLoads][i % kLineLoads] =
          at < count ? __ldcg(lines + row * (blocks * 2) + at) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (uint32_t t = 0; t < kFfnXLoadRows; ++t) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kLineLoads; ++i) {
        const uint32_t at = i * 32 + lane;
        const uint4& line = loaded[t][i];
        const uint2 low = ReorderActivations(line.x, line.y);
        const uint2 high = ReorderActivations(line.z, line.w);
        if (at < kPairSubBlocks) {
          reinterpret_cast<uint4*>(stage)[at] = {low.x, low.y, high.x, high.y};
        }
      }
      __syncwarp();
      if (column_row == first + t) {
        const auto* from = reinterpret_cast<const uint2*>(stage) +
                           place.segment * kSegmentSubBlocks * 2 + place.line;
#pragma unroll
        for (uint32_t b = 0; b < kSegmentSubBlocks; ++b) x->q[b] = own ? from[b * 2] : uint2{0, 0};
      }
    }
  }
}

__device__ inline void MultiplyAddInt8(const uint32_t (&a)[4], uint2 b, const int32_t (&c)[4],
                                       int32_t (&d)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

inline constexpr uint32_t kFfnStepsAhead = 4;

// The sums of a pair in its slot. Sub-blocks that a segment lacks add nothing: x and its scales are
// zero there, whatever code and scale, of other weights or zero, lie in their place.
template <int kRows>
__device__ inline FfnSums<kRows> MultiplyFfnPair(const std::byte* slot, const std::byte* stage,
                                                 uint32_t lane, const FfnX& x) {
  constexpr int32_t kStart[4] = {kIntegerFloatBits, kIntegerFloatBits, kIntegerFloatBits,
                                 kIntegerFloatBits};
  const FfnLane place = FfnLane::Of(lane);
  const std::byte* codes = slot + place.segment * kSegmentSubBlocks * kSubBlockCodeBytes +
                           place.line * (kSubBlockCodeBytes / 2) + place.p * 8;
  using Columns = FfnColumns<kRows>;
  using Scales = std::conditional_t<kRows == 2, float, float2>;
  constexpr uint32_t kScalesOfRow = kRows / Columns::kLaneRows;  // of Scales
  const FfnLane of = Columns::SumPlace(lane);
  const std::byte* const scales =
      slot + kPairCodeBytes + of.segment * kSegmentSubBlocks * kSubBlockScaleBytes + of.p * 2;
  const auto* const x_scales = reinterpret_cast<const Scales*>(stage + kFfnXStageLineBytes) +
                               of.segment * (kSegmentSubBlocks / 2 * kScalesOfRow) +
                               Columns::SumRow(lane, 0) / Columns::kLaneRows;
  float x_scale[Columns::kLaneRows];
  FfnSums<kRows> sums = {};
#pragma unroll
  for (uint32_t b = 0; b < kSegmentSubBlocks; ++b) {
    // Nothing is loaded further ahead: registers.
    if (b % kFfnStepsAhead == 0) asm volatile("" ::: "memory");
    const uint2 words = *reinterpret_cast<const uint2*>(codes + b * kSubBlockCodeBytes);
    const Nvfp4Addends even = DecodeNvfp4Addends(words.x);
    const Nvfp4Addends odd = DecodeNvfp4Addends(words.y);
    const uint32_t twice[4] = {even.twice[0], odd.twice[0], even.twice[1], odd.twice[1]};
    const uint32_t minus[4] = {even.minus[0], odd.minus[0], even.minus[1], odd.minus[1]};
    int32_t dots[4];  // weight row 2p: columns 2c, 2c + 1; weight row 2p + 1: the same
    const uint2 q = x.q[b];
    MultiplyAddInt8(twice, q, kStart, dots);
    MultiplyAddInt8(minus, q, dots, dots);
    const float2 w_scales =
        HalfE4m3Pair(*reinterpret_cast<const uint16_t*>(scales + b * kSubBlockScaleBytes));
    if (b % 2 == 0) {
      const Scales both = x_scales[b / 2 * kScalesOfRow];
      if constexpr (kRows == 2) {
        x_scale[0] = both;
      } else {
        x_scale[0] = both.x;
        x_scale[1] = both.y;
      }
    }
#pragma unroll
    for (int i = 0; i < Columns::kLaneRows; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float exact = __fsub_rn(__int_as_float(dots[2 * r + i]), kIntegerFloat);
        const float scale = __fmul_rn(x_scale[i], r == 0 ? w_scales.x : w_scales.y);
        sums.of[i][r] = __fmaf_rn(scale, exact, sums.of[i][r]);
      }
    }
  }
  return sums;
}

}  // namespace hearth
