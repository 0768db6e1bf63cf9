// Shared body: bands of BF16, FP8 and F32 weights times fp32 rows (definition: scalar/expert.cc).
// Compiled once by each instruction set, after its expert_weights_inl.h and
// ops/expert_driver_inl.h.
#pragma once

#include "cpu_kernels/ops/expert_driver_inl.h"

namespace hearth::HEARTH_ISA {
namespace {

struct Bf16Weights {
  static constexpr size_t kLineBytes = 32;  // one k of sixteen rows
  static constexpr bool kScaled = false;
  HEARTH_ISA_INLINE Register Load(const uint8_t* codes) { return RegisterOfBf16(codes); }
};

struct F32Weights {
  static constexpr size_t kLineBytes = 64;
  static constexpr bool kScaled = false;
  HEARTH_ISA_INLINE Register Load(const uint8_t* values) { return RegisterOfF32(values); }
};

struct Fp8Weights {
  static constexpr size_t kLineBytes = 16;
  static constexpr bool kScaled = true;
  HEARTH_ISA_INLINE Register Load(const uint8_t* codes) { return RegisterOfE4m3(codes); }
};

template <class Weights>
struct WideFormat {
  static constexpr bool kMultiplied = false;
  static constexpr int Units(int rows) { return WideUnits(rows); }

  // acc[u][r] += k in [begin, end), in order, for units from `first` on. FP8: all of it lies in one
  // block of columns.
  template <int R, int U, int D>
  HEARTH_ISA_INLINE void Run(const ExpertTile<D>& tile, int first, uint32_t begin, uint32_t end,
                             Register (&acc)[U][R]) {
    const uint8_t* line[U];
    Register scale[U];
    HEARTH_UNROLL
    for (int u = 0; u < U; ++u) {
      const int d = (first + u) / kParts;
      const int part = (first + u) % kParts;
      line[u] = tile.band[d] + part * (Weights::kLineBytes / kParts);
      if constexpr (Weights::kScaled) scale[u] = RegisterOf(tile.grid[d][begin / kFp8BlockValues]);
    }
    for (size_t k = begin; k < end; ++k) {
      HEARTH_UNROLL
      for (int u = 0; u < U; ++u) {
        Register w = Weights::Load(line[u] + k * Weights::kLineBytes);
        if constexpr (Weights::kScaled) w = RegisterMul(w, scale[u]);
        HEARTH_UNROLL
        for (int r = 0; r < R; ++r) {
          acc[u][r] = RegisterFma(w, RegisterOf(tile.x[r * tile.x_stride + k]), acc[u][r]);
        }
      }
    }
  }

  // The segment [begin, end) of units from `first` on, added to total.
  template <int R, int U, int D>
  HEARTH_ISA_INLINE void Segment(const ExpertTile<D>& tile, int first, uint32_t begin, uint32_t end,
                                 Register (*total)[R]) {
    Register acc[U][R];
    HEARTH_UNROLL
    for (int u = 0; u < U; ++u) {
      HEARTH_UNROLL
      for (int r = 0; r < R; ++r) acc[u][r] = RegisterZero();
    }
    for (uint32_t k = begin; k < end;) {
      const uint32_t block_end = (k / kFp8BlockValues + 1) * kFp8BlockValues;
      const uint32_t run_end = Weights::kScaled && block_end < end ? block_end : end;
      Run<R, U>(tile, first, k, run_end, acc);
      k = run_end;
    }
    HEARTH_UNROLL
    for (int u = 0; u < U; ++u) {
      HEARTH_UNROLL
      for (int r = 0; r < R; ++r) {
        total[first + u][r] = RegisterAdd(total[first + u][r], acc[u][r]);
      }
    }
  }

  template <int R, int D>
  HEARTH_ISA_INLINE void Dot(const ExpertTile<D>& tile, Register (*total)[R]) {
    constexpr int kUnits = Units(R) < D * kParts ? Units(R) : D * kParts;
    ClearTotals<R, D>(total);
    for (uint32_t begin = 0; begin < tile.cols; begin += kSegmentValues) {
      const uint32_t left = tile.cols - begin;
      const uint32_t end = begin + (left < kSegmentValues ? left : kSegmentValues);
      for (int first = 0; first < D * kParts; first += kUnits) {
        Segment<R, kUnits>(tile, first, begin, end, total);
      }
    }
  }
};

}  // namespace
}  // namespace hearth::HEARTH_ISA
