// The loops of one routed expert around the tile functions of a weight format: bands outside (the
// weights of a group then lie in the L1 or L2 cache), tiles of up to eight rows inside. With few
// rows more bands are in flight, because the additions of one band and row are one dependent chain.
//
// A Format has  kMultiplied  (outputs are scaled by the projection's multiplier) and
//               Dot<R, B>(tile, total)  (total[b][r] lane i: row i of band b times activation row
//               r).
#pragma once

#include <cstring>

#include "cpu_kernels/avx512/exp_inl.h"
#include "cpu_kernels/avx512/expert_tile.h"
#include "cpu_kernels/avx512/target.h"
#include "cpu_kernels/ops/expert.h"

namespace hearth::avx512 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

inline constexpr uint32_t kExpertTileRows = 8;
inline constexpr uint32_t kFewRows = 2;
inline constexpr uint32_t kPairedRows =
    4;  // up to here the sums of a gate and an up band fit the registers

// Where the bands of one projection start, and the factor of its outputs.
struct ProjectionView {
  const uint8_t* bands;
  uint64_t band_bytes;
  const float* grid;  // kFp8 only
  uint32_t grid_cols;
  uint32_t rows;
  uint32_t cols;
  float multiplier;
};

HEARTH_AVX512_INLINE ProjectionView ViewOf(const ExpertLayout& layout, const std::byte* blob,
                                           Projection p) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(blob);
  ProjectionView view = {};
  view.bands = bytes + layout.projection_offset_bytes(p);
  view.band_bytes = layout.band_bytes(p);
  view.rows = p == Projection::kDown ? layout.hidden : layout.width;
  view.cols = p == Projection::kDown ? layout.width : layout.hidden;
  view.grid_cols = (view.cols + kFp8BlockValues - 1) / kFp8BlockValues;
  if (layout.format == ExpertFormat::kNvfp4) {
    std::memcpy(&view.multiplier, bytes + layout.scale_offset_bytes(p), sizeof(float));
  } else if (layout.format == ExpertFormat::kFp8) {
    view.grid = reinterpret_cast<const float*>(bytes + layout.scale_offset_bytes(p));
  }
  return view;
}

template <int B>
HEARTH_AVX512_INLINE void PlaceBand(const ProjectionView& view, uint32_t band, int slot,
                                    ExpertTile<B>* tile) {
  tile->band[slot] = view.bands + band * view.band_bytes;
  tile->grid[slot] = nullptr;
  if (view.grid != nullptr) {
    const size_t grid_row = size_t{band} * kBandRows / kFp8BlockValues;
    tile->grid[slot] = view.grid + grid_row * view.grid_cols;
  }
}

// The rows from `t` on of the quantised or of the fp32 activations.
template <int B>
HEARTH_AVX512_INLINE void PlaceRows(const QuantizedRows& quantized, const float* x, size_t x_stride,
                                    uint32_t cols, size_t t, ExpertTile<B>* tile) {
  const size_t blocks = ActivationBlocks(cols);
  tile->cols = cols;
  tile->x_stride = x_stride;
  if (x != nullptr) tile->x = x + t * x_stride;
  if (quantized.q != nullptr) {
    tile->q = quantized.q + t * blocks * kActivationBlockValues;
    tile->x_scale = quantized.scale + t * blocks;
    tile->sum16 = quantized.sum16 + t * blocks * 2;
  }
}

HEARTH_AVX512_INLINE __mmask16 BandLanes(uint32_t rows, uint32_t band) {
  const uint32_t left = rows - band * kBandRows;
  return static_cast<__mmask16>(left >= kBandRows ? 0xFFFFu : (1u << left) - 1);
}

template <class Format>
struct GateUp {
  const ExpertGateUpArgs& args;
  ProjectionView gate;
  ProjectionView up;

  // R rows from `t`, P bands of gate and the same of up.
  template <int R, int P>
  HEARTH_AVX512 __attribute__((noinline)) static void Tile(const GateUp& op, uint32_t band,
                                                           size_t t) {
    const ExpertGateUpArgs& args = op.args;
    __m512 total[2 * P][R];
    constexpr int kBands = R > kPairedRows ? 1 : 2 * P;  // at once
#pragma GCC unroll 4
    for (int first = 0; first < 2 * P; first += kBands) {
      ExpertTile<kBands> tile = {};
      PlaceRows(args.xq, args.x, args.x_stride, op.gate.cols, t, &tile);
#pragma GCC unroll 4
      for (int b = 0; b < kBands; ++b) {
        PlaceBand((first + b) % 2 == 0 ? op.gate : op.up, band + (first + b) / 2, b, &tile);
      }
      Format::template Dot<R, kBands>(tile, total + first);
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __mmask16 lanes = BandLanes(op.gate.rows, band + p);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __m512 g = total[2 * p][r];
        __m512 u = total[2 * p + 1][r];
        if constexpr (Format::kMultiplied) {
          g = _mm512_mul_ps(g, _mm512_set1_ps(op.gate.multiplier));
          u = _mm512_mul_ps(u, _mm512_set1_ps(op.up.multiplier));
        }
        float* h = args.h + (t + r) * args.h_stride + size_t{band + p} * kBandRows;
        _mm512_mask_storeu_ps(h, lanes, _mm512_mul_ps(SiluOf(g), u));
      }
    }
  }
};

template <class Format>
struct Down {
  const ExpertDownArgs& args;
  ProjectionView down;

  // R rows from `t`, B bands.
  template <int R, int B>
  HEARTH_AVX512 __attribute__((noinline)) static void Tile(const Down& op, uint32_t band,
                                                           size_t t) {
    const ExpertDownArgs& args = op.args;
    ExpertTile<B> tile = {};
    PlaceRows(args.hq, args.h, args.h_stride, op.down.cols, t, &tile);
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) PlaceBand(op.down, band + b, b, &tile);
    __m512 total[B][R];
    Format::template Dot<R, B>(tile, total);
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      const __mmask16 lanes = BandLanes(op.down.rows, band + b);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __m512 y = total[b][r];
        if constexpr (Format::kMultiplied) y = _mm512_mul_ps(y, _mm512_set1_ps(op.down.multiplier));
        _mm512_mask_storeu_ps(args.y + (t + r) * args.y_stride + size_t{band + b} * kBandRows,
                              lanes, y);
      }
    }
  }
};

// One group of G bands over all rows, in tiles of nearly equal height, at most R rows each.
template <int G, int R, class Op>
HEARTH_AVX512_INLINE void Tiles(const Op& op, uint32_t band, uint32_t rows) {
  for (uint32_t t = 0; t < rows;) {
    const uint32_t tiles_left = (rows - t + R - 1) / R;
    const uint32_t height = (rows - t + tiles_left - 1) / tiles_left;
    switch (height) {
      case 1:
        Op::template Tile<1, G>(op, band, t);
        break;
      case 2:
        Op::template Tile<2, G>(op, band, t);
        break;
      case 3:
        if constexpr (R >= 3) Op::template Tile<3, G>(op, band, t);
        break;
      case 4:
        if constexpr (R >= 4) Op::template Tile<4, G>(op, band, t);
        break;
      case 5:
        if constexpr (R >= 5) Op::template Tile<5, G>(op, band, t);
        break;
      case 6:
        if constexpr (R >= 6) Op::template Tile<6, G>(op, band, t);
        break;
      case 7:
        if constexpr (R >= 7) Op::template Tile<7, G>(op, band, t);
        break;
      case 8:
        if constexpr (R >= 8) Op::template Tile<8, G>(op, band, t);
        break;
    }
    t += height;
  }
}

template <class Format>
HEARTH_AVX512_INLINE void RunGateUp(const ExpertGateUpArgs& args) {
  const GateUp<Format> op = {args, ViewOf(*args.layout, args.blob, Projection::kGate),
                             ViewOf(*args.layout, args.blob, Projection::kUp)};
  uint32_t band = args.band_begin;
  if (args.rows <= kFewRows) {
    for (; band + 2 <= args.band_end; band += 2) Tiles<2, kFewRows>(op, band, args.rows);
  }
  for (; band < args.band_end; ++band) Tiles<1, kExpertTileRows>(op, band, args.rows);
}

template <class Format>
HEARTH_AVX512_INLINE void RunDown(const ExpertDownArgs& args) {
  const Down<Format> op = {args, ViewOf(*args.layout, args.blob, Projection::kDown)};
  uint32_t band = args.band_begin;
  if (args.rows <= kFewRows) {
    for (; band + 4 <= args.band_end; band += 4) Tiles<4, kFewRows>(op, band, args.rows);
  }
  if (args.rows <= kPairedRows) {
    for (; band + 2 <= args.band_end; band += 2) Tiles<2, kPairedRows>(op, band, args.rows);
  }
  for (; band < args.band_end; ++band) Tiles<1, kExpertTileRows>(op, band, args.rows);
}

}  // namespace
}  // namespace hearth::avx512
