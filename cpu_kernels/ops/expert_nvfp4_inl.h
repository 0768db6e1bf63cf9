// Shared body: NVFP4 bands times quantised rows (definition: scalar/expert.cc). Each sub-block is
// decoded once for all rows of the tile. Compiled once by each instruction set, after its
// expert_weights_inl.h and ops/expert_driver_inl.h.
//
// A code becomes the unsigned byte T + 12, T its doubled value (-12 to 12), so that byte products
// with int8 activations are unsigned times signed; 12 times the sum of the activations is taken
// off.
#pragma once

#include "cpu_kernels/ops/expert_driver_inl.h"

namespace hearth::HEARTH_ISA {
namespace {

inline constexpr uint32_t kSegmentSubBlocks = kSegmentValues / kNvfp4BlockValues;  // 20
inline constexpr size_t kSubBlockBytes = 128;                                      // of codes
inline constexpr size_t kLineBytes = 64;

struct Nvfp4Format {
  static constexpr bool kMultiplied = true;
  static constexpr int Units(int rows) { return Nvfp4Units(rows); }

  // -12 * sum16 of sub-blocks [begin, begin + count).
  template <int R>
  HEARTH_ISA_INLINE void Biases(const int32_t* sum16, size_t row_stride, uint32_t begin,
                                uint32_t count, int32_t (&bias)[R][kSegmentSubBlocks]) {
    for (int r = 0; r < R; ++r) {
      for (uint32_t i = 0; i < count; ++i) bias[r][i] = -12 * sum16[r * row_stride + begin + i];
    }
  }

  // The part of band d that is read one or two segments after sub-block `begin`, 10 KB of all bands
  // later: in the band itself or, at its end, in the band after it. Its scales are asked for, its
  // codes by the caller. The band itself when nothing comes after it.
  template <int D>
  HEARTH_ISA_INLINE const uint8_t* Ahead(const ExpertTile<D>& tile, int d, uint32_t begin) {
    constexpr uint32_t kSegments = D >= 4 ? 1 : 2;
    const uint32_t sub_blocks = tile.cols / kNvfp4BlockValues;
    const uint32_t next = begin + kSegments * kSegmentSubBlocks;
    const bool is_inside = next < sub_blocks;
    const uint8_t* band = is_inside ? tile.band[d] : tile.ahead[d];
    if (band == nullptr) return tile.band[d];
    const uint32_t past = next - sub_blocks;
    const size_t first = is_inside ? next : past < sub_blocks ? past : 0;
    const uint8_t* scales = band + sub_blocks * kSubBlockBytes + first * kBandRows;
    for (size_t at = 0; at < kSegmentSubBlocks * kBandRows; at += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(scales + at), _MM_HINT_T1);
    }
    return band + first * kSubBlockBytes;
  }

  // Sub-blocks [begin, begin + count) of units [first, first + U), added to acc.
  template <int R, int U, int D>
  HEARTH_ISA_INLINE void Run(const ExpertTile<D>& tile, int first, uint32_t begin, uint32_t count,
                             const int32_t (&bias)[R][kSegmentSubBlocks],
                             const uint8_t* const (&ahead)[D], Register (&acc)[U][R]) {
    const size_t row_blocks = ActivationBlocks(tile.cols);
    const size_t codes_bytes = size_t{tile.cols} * kBandRows / 2;
    for (uint32_t i = 0; i < count; ++i) {
      const size_t s = begin + i;
      HEARTH_UNROLL
      for (int u = 0; u < U; ++u) {
        const int d = (first + u) / kParts;
        const int part = (first + u) % kParts;
        const uint8_t* band = tile.band[d];
        HEARTH_UNROLL
        for (int line = part; line < 2; line += kParts) {
          _mm_prefetch(
              reinterpret_cast<const char*>(ahead[d] + i * kSubBlockBytes + line * kLineBytes),
              _MM_HINT_T1);
        }
        const SubBlock w = DecodeSubBlock(band + s * kSubBlockBytes + part * (kLineBytes / kParts));
        const Register w_scale =
            HalvedE4m3(band + codes_bytes + s * kBandRows + part * kRegisterLanes);
        HEARTH_UNROLL
        for (int r = 0; r < R; ++r) {
          const int8_t* q = tile.q + r * row_blocks * kActivationBlockValues + s * 16;
          const Register x_scale = RegisterOf(tile.x_scale[r * row_blocks + s / 2]);
          acc[u][r] =
              RegisterFma(RegisterMul(x_scale, w_scale), DotSubBlock(w, q, bias[r][i]), acc[u][r]);
        }
      }
    }
  }

  template <int R, int D>
  HEARTH_ISA_INLINE void Dot(const ExpertTile<D>& tile, Register (*total)[R]) {
    constexpr int kUnits = Units(R) < D * kParts ? Units(R) : D * kParts;
    ClearTotals<R, D>(total);
    const uint32_t sub_blocks = tile.cols / kNvfp4BlockValues;
    const size_t row_sums = ActivationBlocks(tile.cols) * 2;
    for (uint32_t begin = 0; begin < sub_blocks; begin += kSegmentSubBlocks) {
      const uint32_t left = sub_blocks - begin;
      const uint32_t count = left < kSegmentSubBlocks ? left : kSegmentSubBlocks;
      alignas(64) int32_t bias[R][kSegmentSubBlocks];
      Biases<R>(tile.sum16, row_sums, begin, count, bias);
      const uint8_t* ahead[D];
      for (int d = 0; d < D; ++d) ahead[d] = Ahead(tile, d, begin);
      for (int first = 0; first < D * kParts; first += kUnits) {
        Register acc[kUnits][R];
        HEARTH_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          HEARTH_UNROLL
          for (int r = 0; r < R; ++r) acc[u][r] = RegisterZero();
        }
        Run<R, kUnits>(tile, first, begin, count, bias, ahead, acc);
        HEARTH_UNROLL
        for (int u = 0; u < kUnits; ++u) {
          HEARTH_UNROLL
          for (int r = 0; r < R; ++r) {
            total[first + u][r] = RegisterAdd(total[first + u][r], acc[u][r]);
          }
        }
      }
    }
  }
};

}  // namespace
}  // namespace hearth::HEARTH_ISA
