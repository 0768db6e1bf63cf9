// Shared body: the loops of one routed expert around the dot products of a weight format. Bands
// outside (their weights then lie in the L1 or L2 cache), tiles of up to eight rows inside.
// Compiled once by each instruction set, after its register_inl.h.
//
// A Format has  kMultiplied  (outputs are scaled by the projection's multiplier),
//               Units(R)     (registers of sums that are in flight at R rows: 1, 2 or 4; with few
//                            rows more, because the additions of one are a dependent chain) and
//               Dot<R, D>(tile, total)  (total[d * kParts + p][r]: part p of band d times row r).
#pragma once

#include <cstring>

#include "cpu_kernels/ops/expert.h"
#include "cpu_kernels/ops/unroll.h"

namespace hearth::HEARTH_ISA {
namespace {  // what is compiled for one instruction set stays out of the weak symbols

inline constexpr uint32_t kExpertTileRows = 8;
inline constexpr int kParts = kBandRows / kRegisterLanes;  // registers for the rows of a band

// What one tile of an expert product reads: D bands of weights against R activation rows.
template <int D>
struct ExpertTile {
  const uint8_t* band[D];   // start of each band: pack/format/expert_layout.h
  const uint8_t* ahead[D];  // start of the band that is read after it: asked for early
  const float* grid[D];     // kFp8: the scales of the band's rows, one for each 128 columns
  uint32_t cols;
  const int8_t* q;  // kNvfp4: first row of the tile, as QuantizedRows
  const float* x_scale;
  const int32_t* sum16;
  const float* x;  // others: first row of the tile
  size_t x_stride;
};

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

HEARTH_ISA_INLINE ProjectionView ViewOf(const ExpertLayout& layout, const std::byte* blob,
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

// Band `band` as slot `slot` of a tile; `ahead` starts what is read in its place afterwards.
template <int D>
HEARTH_ISA_INLINE void PlaceBand(const ProjectionView& view, uint32_t band, const uint8_t* ahead,
                                 int slot, ExpertTile<D>* tile) {
  tile->band[slot] = view.bands + band * view.band_bytes;
  tile->ahead[slot] = ahead;
  tile->grid[slot] = nullptr;
  if (view.grid != nullptr) {
    const size_t grid_row = size_t{band} * kBandRows / kFp8BlockValues;
    tile->grid[slot] = view.grid + grid_row * view.grid_cols;
  }
}

// Band `next` of the share that ends before `band_end`, or else slot `slot` of what the caller
// reads after it, or null.
HEARTH_ISA_INLINE const uint8_t* AheadOf(const ProjectionView& view, uint32_t next,
                                         uint32_t band_end, const std::byte* read_ahead, int slot) {
  if (next < band_end) return view.bands + next * view.band_bytes;
  if (read_ahead == nullptr) return nullptr;
  return reinterpret_cast<const uint8_t*>(read_ahead) + slot * view.band_bytes;
}

// The rows from `t` on of the quantised or of the fp32 activations.
template <int D>
HEARTH_ISA_INLINE void PlaceRows(const QuantizedRows& quantized, const float* x, size_t x_stride,
                                 uint32_t cols, size_t t, ExpertTile<D>* tile) {
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

// -0 added to any number leaves that number, +0 and -0 among them.
template <int R, int D>
HEARTH_ISA_INLINE void ClearTotals(Register (*total)[R]) {
  HEARTH_UNROLL
  for (int unit = 0; unit < D * kParts; ++unit) {
    HEARTH_UNROLL
    for (int r = 0; r < R; ++r) total[unit][r] = RegisterOf(-0.0f);
  }
}

// Part `part` of band `band`: the lanes whose rows exist.
HEARTH_ISA_INLINE void StorePart(float* row_out, Register v, uint32_t rows, uint32_t band,
                                 uint32_t part) {
  const uint32_t first = band * kBandRows + part * kRegisterLanes;
  if (first < rows) RegisterStore(row_out + first, v, rows - first);
}

template <class Format>
struct GateUp {
  const ExpertGateUpArgs& args;
  ProjectionView gate;
  ProjectionView up;

  // How many bands of gate, and as many of up, a tile of R rows takes.
  static constexpr int Bands(int rows) {
    return Format::Units(rows) >= 4 * kParts ? Format::Units(rows) / (2 * kParts) : 1;
  }

  // R rows, P bands of gate and the same of up, alternating.
  template <int R, int P>
  HEARTH_ISA_KERNEL __attribute__((noinline)) static void Tile(const GateUp& op, uint32_t band,
                                                               size_t t, bool is_last) {
    const ExpertGateUpArgs& args = op.args;
    Register total[2 * P * kParts][R];
    ExpertTile<2 * P> tile = {};
    PlaceRows(args.xq, args.x, args.x_stride, op.gate.cols, t, &tile);
    for (int d = 0; d < 2 * P; ++d) {
      const ProjectionView& view = d % 2 == 0 ? op.gate : op.up;
      const uint32_t next = band + P + d / 2;
      const uint8_t* ahead =
          next < args.band_end ? view.bands + next * view.band_bytes
          : args.read_ahead != nullptr
              ? reinterpret_cast<const uint8_t*>(args.read_ahead) + d * view.band_bytes
              : nullptr;
      PlaceBand(view, band + d / 2, is_last ? ahead : nullptr, d, &tile);
    }
    Format::template Dot<R, 2 * P>(tile, total);
    for (int p = 0; p < P; ++p) {
      for (int part = 0; part < kParts; ++part) {
        HEARTH_UNROLL
        for (int r = 0; r < R; ++r) {
          Register g = total[2 * p * kParts + part][r];
          Register u = total[(2 * p + 1) * kParts + part][r];
          if constexpr (Format::kMultiplied) {
            g = RegisterMul(g, RegisterOf(op.gate.multiplier));
            u = RegisterMul(u, RegisterOf(op.up.multiplier));
          }
          StorePart(args.h + (t + r) * args.h_stride, RegisterMul(SiluOf(g), u), op.gate.rows,
                    band + p, part);
        }
      }
    }
  }
};

template <class Format>
struct Down {
  const ExpertDownArgs& args;
  ProjectionView down;

  static constexpr int Bands(int rows) {
    return Format::Units(rows) >= 2 * kParts ? Format::Units(rows) / kParts : 1;
  }

  // R rows, P bands.
  template <int R, int P>
  HEARTH_ISA_KERNEL __attribute__((noinline)) static void Tile(const Down& op, uint32_t band,
                                                               size_t t, bool is_last) {
    const ExpertDownArgs& args = op.args;
    Register total[P * kParts][R];
    ExpertTile<P> tile = {};
    PlaceRows(args.hq, args.h, args.h_stride, op.down.cols, t, &tile);
    for (int d = 0; d < P; ++d) {
      const uint32_t next = band + P + d;
      const uint8_t* ahead =
          next < args.band_end ? op.down.bands + next * op.down.band_bytes
          : args.read_ahead != nullptr
              ? reinterpret_cast<const uint8_t*>(args.read_ahead) + d * op.down.band_bytes
              : nullptr;
      PlaceBand(op.down, band + d, is_last ? ahead : nullptr, d, &tile);
    }
    Format::template Dot<R, P>(tile, total);
    for (int d = 0; d < P; ++d) {
      for (int part = 0; part < kParts; ++part) {
        HEARTH_UNROLL
        for (int r = 0; r < R; ++r) {
          Register y = total[d * kParts + part][r];
          if constexpr (Format::kMultiplied) y = RegisterMul(y, RegisterOf(op.down.multiplier));
          StorePart(args.y + (t + r) * args.y_stride, y, op.down.rows, band + d, part);
        }
      }
    }
  }
};

// A tile of R rows over P bands when that is how many Op takes at R rows, else one band at a time.
template <int P, int R, class Op>
HEARTH_ISA_INLINE void TileOf(const Op& op, uint32_t band, size_t t, bool is_last) {
  if constexpr (P <= Op::Bands(R)) {
    Op::template Tile<R, P>(op, band, t, is_last);
  }
}

// P bands over all rows, in tiles of nearly equal height.
template <int P, class Op>
HEARTH_ISA_INLINE void Tiles(const Op& op, uint32_t band, uint32_t rows) {
  for (uint32_t t = 0; t < rows;) {
    const uint32_t tiles_left = (rows - t + kExpertTileRows - 1) / kExpertTileRows;
    const uint32_t height = (rows - t + tiles_left - 1) / tiles_left;
    const bool is_last = t + height == rows;
    switch (height) {
      case 1:
        TileOf<P, 1>(op, band, t, is_last);
        break;
      case 2:
        TileOf<P, 2>(op, band, t, is_last);
        break;
      case 3:
        TileOf<P, 3>(op, band, t, is_last);
        break;
      case 4:
        TileOf<P, 4>(op, band, t, is_last);
        break;
      case 5:
        TileOf<P, 5>(op, band, t, is_last);
        break;
      case 6:
        TileOf<P, 6>(op, band, t, is_last);
        break;
      case 7:
        TileOf<P, 7>(op, band, t, is_last);
        break;
      case 8:
        TileOf<P, 8>(op, band, t, is_last);
        break;
    }
    t += height;
  }
}

// How many bands at once: what the highest tile of `rows` allows.
template <class Op>
HEARTH_ISA_INLINE int BandsAtOnce(uint32_t rows) {
  return rows <= 1 ? Op::Bands(1) : rows <= 2 ? Op::Bands(2) : rows <= 4 ? Op::Bands(4) : 1;
}

template <class Op>
HEARTH_ISA_INLINE void RunBands(const Op& op, uint32_t begin, uint32_t end, uint32_t rows) {
  const int at_once = BandsAtOnce<Op>(rows);
  uint32_t band = begin;
  if (at_once >= 4) {
    for (; band + 4 <= end; band += 4) Tiles<4>(op, band, rows);
  }
  if (at_once >= 2) {
    for (; band + 2 <= end; band += 2) Tiles<2>(op, band, rows);
  }
  for (; band < end; ++band) Tiles<1>(op, band, rows);
}

template <class Format>
HEARTH_ISA_INLINE void RunGateUp(const ExpertGateUpArgs& args) {
  const GateUp<Format> op = {args, ViewOf(*args.layout, args.blob, Projection::kGate),
                             ViewOf(*args.layout, args.blob, Projection::kUp)};
  RunBands(op, args.band_begin, args.band_end, args.rows);
}

template <class Format>
HEARTH_ISA_INLINE void RunDown(const ExpertDownArgs& args) {
  const Down<Format> op = {args, ViewOf(*args.layout, args.blob, Projection::kDown)};
  RunBands(op, args.band_begin, args.band_end, args.rows);
}

}  // namespace
}  // namespace hearth::HEARTH_ISA
