// Shared body: routed experts in XT (definition: scalar/expert_xt.cc). Blocks of 32 columns
// outside, bands inside, so that a stream is decoded in its order, once for up to eight rows; the
// sums of a group's bands lie in the first cache meanwhile. Compiled once by each instruction set,
// after its xt_decoder_inl.h, which has
//   kXtParts               registers for the 64 lanes of a line
//   XtBytes                one of them
//   XtDecoder<bits>        Start(): state from the chunks before one; Decode(): its eight steps
//   XtSums                 int32 sums of a register's rows; XtLoad, XtStore, XtDot, XtNumbers
#pragma once

#include <cstring>

#include "cpu_kernels/ops/expert.h"
#include "cpu_kernels/ops/unroll.h"

namespace hearth::HEARTH_ISA {
namespace {

inline constexpr uint32_t kXtTileRows = 8;

// Bands [first, end) of one group of a matrix against R rows.
struct XtRun {
  const uint8_t* group;  // its first chunk: band 0 of block 0
  uint32_t group_bands;
  uint32_t first;  // in the group
  uint32_t end;
  uint32_t block_count;
  const int8_t* q;       // first row
  size_t cols;           // stride of the rows
  const uint8_t* ahead;  // read next, or null
};

// sums[band - first][row][16] of u * q.
template <uint32_t kBits, int R>
HEARTH_ISA_KERNEL __attribute__((noinline)) void XtAccumulate(const XtRun& run, int32_t* sums) {
  constexpr size_t kChunkBytes = size_t{kXtLaneCount} * kBits;
  std::memset(sums, 0, size_t{run.end - run.first} * R * kBandRows * sizeof(int32_t));
  const size_t block_bytes = run.group_bands * kChunkBytes;
  const uint32_t before = (run.first == 0 ? run.group_bands : run.first) - 1;
  const uint32_t before2 = (before == 0 ? run.group_bands : before) - 1;
  for (uint32_t block = 0; block < run.block_count; ++block) {
    const uint8_t* start = run.group + block * block_bytes;
    const int8_t* q = run.q + size_t{block} * kXtBlockCols;
    const bool is_last = block + 1 == run.block_count;
    const uint8_t* ahead = !is_last               ? start + block_bytes + run.first * kChunkBytes
                           : run.ahead != nullptr ? run.ahead
                                                  : start;
    for (int part = 0; part < kXtParts; ++part) {
      const size_t lane = static_cast<size_t>(part) * (kXtLaneCount / kXtParts);
      const uint8_t* chunk = start + run.first * kChunkBytes + lane;
      XtDecoder<kBits> decoder;
      XtDecoder<kBits>::Start(start + before * kChunkBytes + lane,
                              start + before2 * kChunkBytes + lane, &decoder);
      int32_t* band_sums = sums + part * (kBandRows / kXtParts);
      for (uint32_t band = run.first; band < run.end; ++band) {
        XtBytes w[kXtStepsPerChunk];
        XtDecoder<kBits>::Decode(chunk, &decoder, w);
        if (part == 0) {
          HEARTH_UNROLL
          for (uint32_t line = 0; line < kBits; ++line) {
            _mm_prefetch(reinterpret_cast<const char*>(ahead + line * kXtLaneCount), _MM_HINT_T0);
          }
          ahead += kChunkBytes;
        }
        HEARTH_UNROLL
        for (int r = 0; r < R; ++r) {
          XtSums acc = XtLoad(band_sums + r * kBandRows);
          HEARTH_UNROLL
          for (uint32_t step = 0; step < kXtStepsPerChunk; ++step) {
            acc = XtDot(acc, w[step], q + r * run.cols + step * 4);
          }
          XtStore(band_sums + r * kBandRows, acc);
        }
        chunk += kChunkBytes;
        band_sums += R * kBandRows;
      }
    }
  }
}

template <uint32_t kBits>
HEARTH_ISA_INLINE void XtAccumulateRows(const XtRun& run, uint32_t rows, int32_t* sums) {
  switch (rows) {
    case 1:
      return XtAccumulate<kBits, 1>(run, sums);
    case 2:
      return XtAccumulate<kBits, 2>(run, sums);
    case 3:
      return XtAccumulate<kBits, 3>(run, sums);
    case 4:
      return XtAccumulate<kBits, 4>(run, sums);
    case 5:
      return XtAccumulate<kBits, 5>(run, sums);
    case 6:
      return XtAccumulate<kBits, 6>(run, sums);
    case 7:
      return XtAccumulate<kBits, 7>(run, sums);
    case 8:
      return XtAccumulate<kBits, 8>(run, sums);
  }
}

// One projection in memory, its groups and its factors.
struct XtProjection {
  XtShape shape;
  const uint8_t* codes;
  const uint8_t* scales;  // fp16, one for each row
  float multiplier;
};

HEARTH_ISA_INLINE XtProjection XtProjectionOf(const ExpertLayout& layout, const std::byte* blob,
                                              Projection p) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(blob);
  XtProjection view;
  view.shape = layout.xt_shape(p);
  view.codes = bytes + layout.projection_offset_bytes(p);
  view.scales = view.codes + view.shape.scale_offset_bytes();
  std::memcpy(&view.multiplier, bytes + layout.scale_offset_bytes(p), sizeof(float));
  return view;
}

// Bands [begin, end) of a projection, all in one group, times rows [t, t + height).
struct XtTile {
  uint32_t begin;
  uint32_t end;
  uint32_t t;
  uint32_t height;
  const uint8_t* ahead;
};

HEARTH_ISA_INLINE void XtSumTile(const XtProjection& m, const XtRows& x, const XtTile& tile,
                                 int32_t* sums) {
  const uint32_t group = m.shape.group_of(tile.begin);
  const uint32_t group_begin = m.shape.group_begin(group);
  const XtRun run = {.group = m.codes + m.shape.chunk_offset_bytes(0, group_begin),
                     .group_bands = m.shape.group_begin(group + 1) - group_begin,
                     .first = tile.begin - group_begin,
                     .end = tile.end - group_begin,
                     .block_count = m.shape.block_count(),
                     .q = x.q + size_t{tile.t} * x.cols,
                     .cols = x.cols,
                     .ahead = tile.ahead};
  switch (m.shape.bits) {
    case 2:
      return XtAccumulateRows<2>(run, tile.height, sums);
    case 3:
      return XtAccumulateRows<3>(run, tile.height, sums);
    case 4:
      return XtAccumulateRows<4>(run, tile.height, sums);
  }
}

// What becomes of the numbers of a tile.
enum class XtOutput { kStore, kStoreSilu, kMultiply };

// out: (rows, outputs of the projection), row stride out_stride.
template <XtOutput kOutput>
HEARTH_ISA_INLINE void XtFinishTile(const XtProjection& m, const XtRows& x, const XtTile& tile,
                                    const int32_t* sums, float* out, size_t out_stride) {
  for (uint32_t band = tile.begin; band < tile.end; ++band) {
    for (uint32_t part = 0; part < kXtParts; ++part) {
      const uint32_t row = band * kBandRows + part * kRegisterLanes;
      if (row >= m.shape.rows) continue;
      const uint32_t count = m.shape.rows - row;
      const Register factor =
          RegisterMul(XtRowScales(m.scales + size_t{row} * 2), RegisterOf(m.multiplier));
      for (uint32_t r = 0; r < tile.height; ++r) {
        const size_t t = size_t{tile.t} + r;
        const int32_t* at = sums + size_t{(band - tile.begin) * tile.height + r} * kBandRows +
                            part * kRegisterLanes;
        const Register total = XtNumbers(at, static_cast<int32_t>(kXtLevelOffset) * x.sum[t]);
        Register y = RegisterMul(RegisterMul(total, RegisterOf(x.scale[t])), factor);
        float* to = out + t * out_stride + row;
        if constexpr (kOutput == XtOutput::kStoreSilu) y = SiluOf(y);
        if constexpr (kOutput == XtOutput::kMultiply) y = RegisterMul(XtLoadNumbers(to, count), y);
        RegisterStore(to, y, count);
      }
    }
  }
}

// Bands [begin, end) and all rows in tiles of one group and of nearly equal height.
struct XtTiles {
  uint32_t begin;
  uint32_t end;
  uint32_t rows;
  const uint8_t* read_ahead;
  uint32_t t = 0;  // first row of the next tile
};

HEARTH_ISA_INLINE bool XtNextTile(const XtShape& shape, XtTiles* left, XtTile* tile) {
  if (left->begin >= left->end || left->rows == 0) return false;
  const uint32_t group_end = shape.group_begin(shape.group_of(left->begin) + 1);
  const uint32_t rows_left = left->rows - left->t;
  const uint32_t tiles_left = (rows_left + kXtTileRows - 1) / kXtTileRows;
  *tile = {.begin = left->begin,
           .end = left->end < group_end ? left->end : group_end,
           .t = left->t,
           .height = (rows_left + tiles_left - 1) / tiles_left,
           .ahead = nullptr};
  left->t += tile->height;
  if (left->t == left->rows) {
    left->t = 0;
    left->begin = tile->end;
    if (left->begin == left->end) tile->ahead = left->read_ahead;
  }
  return true;
}

inline constexpr size_t kXtSumCount = size_t{kXtGroupBandsMax} * kXtTileRows * kBandRows;

HEARTH_ISA_INLINE void RunGateUpXt(const ExpertGateUpArgs& args) {
  const XtProjection gate = XtProjectionOf(*args.layout, args.blob, Projection::kGate);
  const XtProjection up = XtProjectionOf(*args.layout, args.blob, Projection::kUp);
  alignas(64) int32_t sums[kXtSumCount];
  XtTiles left = {args.band_begin, args.band_end, args.rows,
                  reinterpret_cast<const uint8_t*>(args.read_ahead)};
  XtTile tile;
  while (XtNextTile(gate.shape, &left, &tile)) {
    const uint8_t* after_up = tile.ahead;
    tile.ahead = up.codes + up.shape.chunk_offset_bytes(0, tile.begin);
    XtSumTile(gate, args.xt, tile, sums);
    XtFinishTile<XtOutput::kStoreSilu>(gate, args.xt, tile, sums, args.h, args.h_stride);
    tile.ahead = after_up;
    XtSumTile(up, args.xt, tile, sums);
    XtFinishTile<XtOutput::kMultiply>(up, args.xt, tile, sums, args.h, args.h_stride);
  }
}

HEARTH_ISA_INLINE void RunDownXt(const ExpertDownArgs& args) {
  const XtProjection down = XtProjectionOf(*args.layout, args.blob, Projection::kDown);
  alignas(64) int32_t sums[kXtSumCount];
  XtTiles left = {args.band_begin, args.band_end, args.rows,
                  reinterpret_cast<const uint8_t*>(args.read_ahead)};
  XtTile tile;
  while (XtNextTile(down.shape, &left, &tile)) {
    XtSumTile(down, args.ht, tile, sums);
    XtFinishTile<XtOutput::kStore>(down, args.ht, tile, sums, args.y, args.y_stride);
  }
}

}  // namespace
}  // namespace hearth::HEARTH_ISA
