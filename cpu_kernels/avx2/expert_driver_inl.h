// The loops of one routed expert around the tile functions of a weight format: bands outside (their
// weights then lie in the L1 or L2 cache), tiles of up to eight rows inside, a band as two
// half-bands.
//
// A Format has  kMultiplied  (outputs are scaled by the projection's multiplier),
//               Units(R)     (half-bands that fit the registers at R rows: 1, 2 or 4) and
//               Dot<R, U>(tile, total)  (total[u][r] lane i: row i of unit u times activation row
//               r).
#pragma once

#include <cstring>

#include "cpu_kernels/avx2/exp_inl.h"
#include "cpu_kernels/avx2/expert_tile.h"
#include "cpu_kernels/avx2/target.h"
#include "cpu_kernels/ops/expert.h"

namespace hearth::avx2 {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

constexpr uint32_t kExpertTileRows = 8;

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

HEARTH_AVX2_INLINE ProjectionView ViewOf(const ExpertLayout& layout, const std::byte* blob,
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

HEARTH_AVX2_INLINE HalfBand UnitOf(const ProjectionView& view, uint32_t band, uint32_t half) {
  HalfBand unit = {view.bands + band * view.band_bytes, half, nullptr};
  if (view.grid != nullptr) {
    const size_t grid_row = size_t{band} * kBandRows / kFp8BlockValues;
    unit.grid = view.grid + grid_row * view.grid_cols;
  }
  return unit;
}

// The rows from `t` on of the quantised or of the fp32 activations.
template <int U>
HEARTH_AVX2_INLINE void PlaceRows(const QuantizedRows& quantized, const float* x, size_t x_stride,
                                  uint32_t cols, size_t t, ExpertTile<U>* tile) {
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

// Writes the lanes of rows that exist: row `first` of the matrix is lane 0.
HEARTH_AVX2_INLINE void StoreLanes(float* out, __m256 v, uint32_t rows, uint32_t first) {
  if (first + 8 <= rows) {
    _mm256_storeu_ps(out, v);
  } else if (first < rows) {
    float lanes[8];
    _mm256_storeu_ps(lanes, v);
    std::memcpy(out, lanes, (rows - first) * sizeof(float));
  }
}

template <class Format>
struct GateUp {
  const ExpertGateUpArgs& args;
  ProjectionView gate;
  ProjectionView up;

  // R rows from `t`, one band of gate and of up: units gate 0, gate 1, up 0, up 1.
  template <int R>
  HEARTH_AVX2 __attribute__((noinline)) static void Tile(const GateUp& op, uint32_t band,
                                                         size_t t) {
    constexpr int kUnits = Format::Units(R);
    __m256 total[4][R];
    for (int first = 0; first < 4; first += kUnits) {
      ExpertTile<kUnits> tile = {};
      PlaceRows(op.args.xq, op.args.x, op.args.x_stride, op.gate.cols, t, &tile);
#pragma GCC unroll 4
      for (int u = 0; u < kUnits; ++u) {
        tile.unit[u] = UnitOf(first + u < 2 ? op.gate : op.up, band, (first + u) % 2);
      }
      Format::template Dot<R, kUnits>(tile, total + first);
    }
    for (uint32_t half = 0; half < 2; ++half) {
      for (int r = 0; r < R; ++r) {
        __m256 g = total[half][r];
        __m256 u = total[2 + half][r];
        if constexpr (Format::kMultiplied) {
          g = _mm256_mul_ps(g, _mm256_set1_ps(op.gate.multiplier));
          u = _mm256_mul_ps(u, _mm256_set1_ps(op.up.multiplier));
        }
        const uint32_t row = band * kBandRows + half * 8;
        StoreLanes(op.args.h + (t + r) * op.args.h_stride + row, _mm256_mul_ps(SiluOf(g), u),
                   op.gate.rows, row);
      }
    }
  }
};

template <class Format>
struct Down {
  const ExpertDownArgs& args;
  ProjectionView down;

  // R rows from `t`, one band.
  template <int R>
  HEARTH_AVX2 __attribute__((noinline)) static void Tile(const Down& op, uint32_t band, size_t t) {
    constexpr int kUnits = Format::Units(R) < 2 ? 1 : 2;
    __m256 total[2][R];
    for (int first = 0; first < 2; first += kUnits) {
      ExpertTile<kUnits> tile = {};
      PlaceRows(op.args.hq, op.args.h, op.args.h_stride, op.down.cols, t, &tile);
#pragma GCC unroll 2
      for (int u = 0; u < kUnits; ++u) tile.unit[u] = UnitOf(op.down, band, first + u);
      Format::template Dot<R, kUnits>(tile, total + first);
    }
    for (uint32_t half = 0; half < 2; ++half) {
      for (int r = 0; r < R; ++r) {
        __m256 y = total[half][r];
        if constexpr (Format::kMultiplied) y = _mm256_mul_ps(y, _mm256_set1_ps(op.down.multiplier));
        const uint32_t row = band * kBandRows + half * 8;
        StoreLanes(op.args.y + (t + r) * op.args.y_stride + row, y, op.down.rows, row);
      }
    }
  }
};

// One band over all rows, in tiles of nearly equal height.
template <class Op>
HEARTH_AVX2_INLINE void Tiles(const Op& op, uint32_t band, uint32_t rows) {
  for (uint32_t t = 0; t < rows;) {
    const uint32_t tiles_left = (rows - t + kExpertTileRows - 1) / kExpertTileRows;
    const uint32_t height = (rows - t + tiles_left - 1) / tiles_left;
    switch (height) {
      case 1:
        Op::template Tile<1>(op, band, t);
        break;
      case 2:
        Op::template Tile<2>(op, band, t);
        break;
      case 3:
        Op::template Tile<3>(op, band, t);
        break;
      case 4:
        Op::template Tile<4>(op, band, t);
        break;
      case 5:
        Op::template Tile<5>(op, band, t);
        break;
      case 6:
        Op::template Tile<6>(op, band, t);
        break;
      case 7:
        Op::template Tile<7>(op, band, t);
        break;
      default:
        Op::template Tile<8>(op, band, t);
        break;
    }
    t += height;
  }
}

template <class Format>
HEARTH_AVX2_INLINE void RunGateUp(const ExpertGateUpArgs& args) {
  const GateUp<Format> op = {args, ViewOf(*args.layout, args.blob, Projection::kGate),
                             ViewOf(*args.layout, args.blob, Projection::kUp)};
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) Tiles(op, band, args.rows);
}

template <class Format>
HEARTH_AVX2_INLINE void RunDown(const ExpertDownArgs& args) {
  const Down<Format> op = {args, ViewOf(*args.layout, args.blob, Projection::kDown)};
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) Tiles(op, band, args.rows);
}

}  // namespace
}  // namespace hearth::avx2
