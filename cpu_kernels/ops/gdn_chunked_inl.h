// Shared body of the chunked gated delta rule (definition: scalar/gdn.cc). Everything heavy is one
// register tile, rows times vectors, whose chain over the summed index runs in order. Compiled once
// by each instruction set, after its vec16_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/gdn.h"
#include "cpu_kernels/ops/lane_sum_inl.h"

namespace hearth::HEARTH_ISA {

inline constexpr uint32_t kTileRows = 4;

// One chunk: its rows of the arguments, and the regions of the scratch. `columns` is rows rounded
// up to whole vectors; what lies beyond `rows` in the padded regions is never part of a result.
struct GdnChunk {
  uint32_t rows;
  uint32_t columns;
  const float* q;
  const float* k;
  const float* v;
  const float* g;
  const float* beta;
  float* out;       // null: not wanted
  float* a;         // (rows, columns): A, strictly lower
  float* p;         // (rows, columns): P, lower with the diagonal
  float* keys;      // (key_dim, columns): the keys transposed; later (rows, key_dim): decayed keys
  float* delta;     // (rows, value_dim): D
  float* between;   // (columns): L[i] of the current row i; at the end exp(L[last])
  float* decay_to;  // (columns): exp(G)
};

// acc[r][c] += sum over s < count in order of x[r * x_row + s * x_step] * b[s * b_step + 16 c ...].
template <int kRows, int kVecs>
HEARTH_ISA_INLINE void TileAdd(Vec16 (&acc)[kRows][kVecs], const float* x, size_t x_row,
                               size_t x_step, const float* b, size_t b_step, uint32_t count,
                               uint32_t n) {
  for (uint32_t s = 0; s < count; ++s) {
    Vec16 row[kVecs];
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) row[c] = LoadPart(b + s * b_step + c * 16, n);
    HEARTH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec16 factor = Broadcast(x[r * x_row + s * x_step]);
      HEARTH_UNROLL
      for (int c = 0; c < kVecs; ++c) acc[r][c] = Fma(factor, row[c], acc[r][c]);
    }
  }
}

// The same with a minus.
template <int kRows, int kVecs>
HEARTH_ISA_INLINE void TileSubtract(Vec16 (&acc)[kRows][kVecs], const float* x, size_t x_row,
                                    const float* b, size_t b_step, uint32_t count, uint32_t n) {
  for (uint32_t s = 0; s < count; ++s) {
    Vec16 row[kVecs];
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) row[c] = LoadPart(b + s * b_step + c * 16, n);
    HEARTH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec16 factor = Broadcast(x[r * x_row + s]);
      HEARTH_UNROLL
      for (int c = 0; c < kVecs; ++c) acc[r][c] = FmaFrom(factor, row[c], acc[r][c]);
    }
  }
}

template <int kRows, int kVecs>
HEARTH_ISA_INLINE void TileZero(Vec16 (&acc)[kRows][kVecs]) {
  HEARTH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) acc[r][c] = Zero();
  }
}

template <int kRows, int kVecs>
HEARTH_ISA_INLINE void TileStore(const Vec16 (&acc)[kRows][kVecs], float* to, size_t to_row,
                                 uint32_t n) {
  HEARTH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) StorePart(to + r * to_row + c * 16, acc[r][c], n);
  }
}

// Rows i ... of x times the keys, columns up to the diagonal, undecayed.
template <int kRows>
HEARTH_ISA_INLINE void RowsTimesKeys(const GdnChunkedArgs& args, const GdnChunk& chunk, uint32_t i,
                                     const float* x, float* to) {
  x += size_t{i} * args.qkv_stride;
  to += size_t{i} * chunk.columns;
  const uint32_t columns = (i + kRows + 15) / 16 * 16;
  uint32_t j = 0;
  for (; j + kTileVecs * 16 <= columns; j += kTileVecs * 16) {
    Vec16 acc[kRows][kTileVecs];
    TileZero(acc);
    TileAdd(acc, x, args.qkv_stride, 1, chunk.keys + j, chunk.columns, args.key_dim, 16);
    TileStore(acc, to + j, chunk.columns, 16);
  }
  for (; j < columns; j += 16) {
    Vec16 acc[kRows][1];
    TileZero(acc);
    TileAdd(acc, x, args.qkv_stride, 1, chunk.keys + j, chunk.columns, args.key_dim, 16);
    TileStore(acc, to + j, chunk.columns, 16);
  }
}

HEARTH_ISA_INLINE void TransposeKeys(const GdnChunkedArgs& args, const GdnChunk& chunk) {
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    float* to = chunk.keys + size_t{k} * chunk.columns;
    for (uint32_t j = 0; j < chunk.rows; ++j) to[j] = chunk.k[size_t{j} * args.qkv_stride + k];
    for (uint32_t j = chunk.rows; j < chunk.columns; ++j) to[j] = 0;
  }
}

// Row by row, L[i][j] = L[i-1][j] + g[i]: sums of one sign, so that no cancellation hurts exp(L).
HEARTH_ISA_INLINE void DecayMatrices(const GdnChunkedArgs& args, const GdnChunk& chunk) {
  for (uint32_t j = 0; j < chunk.columns; ++j) chunk.between[j] = chunk.decay_to[j] = 0;
  float from_start = 0;
  for (uint32_t i = 0; i < chunk.rows; ++i) {
    const float g = chunk.g[size_t{i} * args.gate_stride];
    from_start = from_start + g;
    chunk.decay_to[i] = from_start;
    const Vec16 beta = Broadcast(chunk.beta[size_t{i} * args.gate_stride]);
    float* a = chunk.a + size_t{i} * chunk.columns;
    float* p = chunk.p + size_t{i} * chunk.columns;
    for (uint32_t j = 0; j <= i; j += 16) {
      Store(chunk.between + j, Add(Load(chunk.between + j), Broadcast(g)));
    }
    chunk.between[i] = 0;
    for (uint32_t j = 0; j <= i; j += 16) {
      const Vec16 decay = Exp(Load(chunk.between + j));
      Store(a + j, Mul(beta, Mul(Load(a + j), decay)));
      Store(p + j, Mul(Load(p + j), decay));
    }
  }
  for (uint32_t j = 0; j < chunk.columns; j += 16) {
    Store(chunk.between + j, Exp(Load(chunk.between + j)));
    Store(chunk.decay_to + j, Exp(Load(chunk.decay_to + j)));
  }
}

// D of rows i ... in value columns v ...; needs D of the rows before.
template <int kRows, int kVecs>
HEARTH_ISA_INLINE void DeltaTile(const GdnChunkedArgs& args, const GdnChunk& chunk, uint32_t i,
                                 uint32_t v, uint32_t n) {
  const size_t row = size_t{i} * args.qkv_stride;
  const float* a = chunk.a + size_t{i} * chunk.columns;
  Vec16 acc[kRows][kVecs];
  TileZero(acc);
  TileAdd(acc, chunk.k + row, args.qkv_stride, 1, args.state + v, args.value_dim, args.key_dim, n);
  HEARTH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float* value = chunk.v + row + size_t(r) * args.qkv_stride + v;
    const Vec16 decay = Broadcast(chunk.decay_to[i + r]);
    const Vec16 beta = Broadcast(chunk.beta[size_t{i + r} * args.gate_stride]);
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      acc[r][c] = Mul(beta, Sub(LoadPart(value + c * 16, n), Mul(decay, acc[r][c])));
    }
  }
  TileSubtract(acc, a, chunk.columns, chunk.delta + v, args.value_dim, i, n);
  HEARTH_UNROLL
  for (int r = 1; r < kRows; ++r) {
    HEARTH_UNROLL
    for (int s = 0; s < r; ++s) {
      const Vec16 factor = Broadcast(a[size_t(r) * chunk.columns + i + s]);
      HEARTH_UNROLL
      for (int c = 0; c < kVecs; ++c) acc[r][c] = FmaFrom(factor, acc[s][c], acc[r][c]);
    }
  }
  TileStore(acc, chunk.delta + size_t{i} * args.value_dim + v, args.value_dim, n);
}

// The outputs of rows i ... in value columns v ...; needs D of these rows and of those before.
template <int kRows, int kVecs>
HEARTH_ISA_INLINE void OutTile(const GdnChunkedArgs& args, const GdnChunk& chunk, uint32_t i,
                               uint32_t v, uint32_t n) {
  const float* p = chunk.p + size_t{i} * chunk.columns;
  const float* delta = chunk.delta + size_t{i} * args.value_dim + v;
  Vec16 acc[kRows][kVecs];
  TileZero(acc);
  TileAdd(acc, chunk.q + size_t{i} * args.qkv_stride, args.qkv_stride, 1, args.state + v,
          args.value_dim, args.key_dim, n);
  HEARTH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const Vec16 decay = Broadcast(chunk.decay_to[i + r]);
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) acc[r][c] = Mul(decay, acc[r][c]);
  }
  TileAdd(acc, p, chunk.columns, 1, chunk.delta + v, args.value_dim, i, n);
  HEARTH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEARTH_UNROLL
    for (int s = 0; s <= r; ++s) {
      const Vec16 factor = Broadcast(p[size_t(r) * chunk.columns + i + s]);
      HEARTH_UNROLL
      for (int c = 0; c < kVecs; ++c) {
        const Vec16 d = LoadPart(delta + size_t(s) * args.value_dim + c * 16, n);
        acc[r][c] = Fma(factor, d, acc[r][c]);
      }
    }
  }
  TileStore(acc, chunk.out + size_t{i} * args.out_stride + v, args.out_stride, n);
}

// Rows k ... of the state, in value columns v ...
template <int kRows, int kVecs>
HEARTH_ISA_INLINE void StateTile(const GdnChunkedArgs& args, const GdnChunk& chunk, uint32_t k,
                                 uint32_t v, uint32_t n) {
  float* state = args.state + size_t{k} * args.value_dim + v;
  const Vec16 decay = Broadcast(chunk.decay_to[chunk.rows - 1]);
  Vec16 acc[kRows][kVecs];
  HEARTH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      acc[r][c] = Mul(decay, LoadPart(state + size_t(r) * args.value_dim + c * 16, n));
    }
  }
  TileAdd(acc, chunk.keys + k, 1, args.key_dim, chunk.delta + v, args.value_dim, chunk.rows, n);
  TileStore(acc, state, args.value_dim, n);
}

// Everything of value columns v ...: D and the outputs down the rows, then the state.
template <int kVecs>
HEARTH_ISA_INLINE void ChunkColumns(const GdnChunkedArgs& args, const GdnChunk& chunk, uint32_t v,
                                    uint32_t n) {
  uint32_t i = 0;
  for (; i + kTileRows <= chunk.rows; i += kTileRows) {
    DeltaTile<kTileRows, kVecs>(args, chunk, i, v, n);
    if (chunk.out != nullptr) OutTile<kTileRows, kVecs>(args, chunk, i, v, n);
  }
  for (; i < chunk.rows; ++i) {
    DeltaTile<1, kVecs>(args, chunk, i, v, n);
    if (chunk.out != nullptr) OutTile<1, kVecs>(args, chunk, i, v, n);
  }
  uint32_t k = 0;
  for (; k + kTileRows <= args.key_dim; k += kTileRows) {
    StateTile<kTileRows, kVecs>(args, chunk, k, v, n);
  }
  for (; k < args.key_dim; ++k) StateTile<1, kVecs>(args, chunk, k, v, n);
}

HEARTH_ISA_INLINE void RunChunk(const GdnChunkedArgs& args, const GdnChunk& chunk) {
  TransposeKeys(args, chunk);
  uint32_t i = 0;
  for (; i + kTileRows <= chunk.rows; i += kTileRows) {
    RowsTimesKeys<kTileRows>(args, chunk, i, chunk.k, chunk.a);
    RowsTimesKeys<kTileRows>(args, chunk, i, chunk.q, chunk.p);
  }
  for (; i < chunk.rows; ++i) {
    RowsTimesKeys<1>(args, chunk, i, chunk.k, chunk.a);
    RowsTimesKeys<1>(args, chunk, i, chunk.q, chunk.p);
  }
  DecayMatrices(args, chunk);
  for (i = 0; i < chunk.rows; ++i) {
    const float* key = chunk.k + size_t{i} * args.qkv_stride;
    const Vec16 decay = Broadcast(chunk.between[i]);
    for (uint32_t k = 0; k < args.key_dim; k += 16) {
      const uint32_t n = PartOf(args.key_dim - k);
      StorePart(chunk.keys + size_t{i} * args.key_dim + k, Mul(decay, LoadPart(key + k, n)), n);
    }
  }
  uint32_t v = 0;
  for (; v + kTileVecs * 16 <= args.value_dim; v += kTileVecs * 16) {
    ChunkColumns<kTileVecs>(args, chunk, v, 16);
  }
  for (; v < args.value_dim; v += 16) ChunkColumns<1>(args, chunk, v, PartOf(args.value_dim - v));
}

HEARTH_ISA_KERNEL void GdnChunked(const GdnChunkedArgs& args) {
  for (uint32_t begin = 0; begin < args.rows; begin += args.chunk_rows) {
    const size_t row = size_t{begin} * args.qkv_stride;
    const size_t gate = size_t{begin} * args.gate_stride;
    GdnChunk chunk;
    chunk.rows = args.rows - begin < args.chunk_rows ? args.rows - begin : args.chunk_rows;
    chunk.columns = (chunk.rows + 15) / 16 * 16;
    chunk.q = args.q + row;
    chunk.k = args.k + row;
    chunk.v = args.v + row;
    chunk.g = args.log_decay + gate;
    chunk.beta = args.beta + gate;
    chunk.out = args.out == nullptr ? nullptr : args.out + size_t{begin} * args.out_stride;
    chunk.a = args.scratch;
    chunk.p = chunk.a + size_t{chunk.rows} * chunk.columns;
    chunk.keys = chunk.p + size_t{chunk.rows} * chunk.columns;
    chunk.delta = chunk.keys + size_t{args.key_dim} * chunk.columns;
    chunk.between = chunk.delta + size_t{chunk.rows} * args.value_dim;
    chunk.decay_to = chunk.between + chunk.columns;
    RunChunk(args, chunk);
  }
}

}  // namespace hearth::HEARTH_ISA
