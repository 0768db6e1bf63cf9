// Shared body of BlockScore and Attend (definition: scalar/attention.cc). Compiled once by each
// instruction set, after its vec16_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/attention.h"
#include "cpu_kernels/ops/lane_sum_inl.h"

namespace hearth::HEARTH_ISA {

HEARTH_ISA_INLINE float NotNegative(float v) { return v < 0 ? 0.0f : v; }

HEARTH_ISA_KERNEL void BlockScore(const BlockScoreArgs& args) {
  for (uint32_t b = 0; b < args.block_count; ++b) {
    const float* key = args.keys + size_t{b} * args.dim;
    float acc = 0;
    uint32_t head = 0;
    for (; head + 4 <= args.heads; head += 4) {
      const float* const q = args.q + size_t{head} * args.dim;
      const float* const rows[4] = {q, q + args.dim, q + size_t{2} * args.dim,
                                    q + size_t{3} * args.dim};
      alignas(16) float dot[4];
      _mm_store_ps(dot, DotFour(key, rows, args.dim));
      HEARTH_UNROLL
      for (int r = 0; r < 4; ++r) acc = acc + NotNegative(dot[r]);
    }
    for (; head < args.heads; ++head) {
      acc = acc + NotNegative(Dot(args.q + size_t{head} * args.dim, key, args.dim));
    }
    args.score[b] = acc * args.scale;
  }
}

// scores[h][i ... i+3] = q_h . K of four positions for H heads from `head`: keys are loaded once.
template <int H>
HEARTH_ISA_INLINE void DotTile(const AttendArgs& args, uint32_t head, const float* const (&rows)[4],
                               uint32_t i) {
  const float* q[H];
  Vec16 acc[H][4];
  HEARTH_UNROLL
  for (int h = 0; h < H; ++h) {
    q[h] = args.q + size_t{head + h} * args.q_stride;
    HEARTH_UNROLL
    for (int r = 0; r < 4; ++r) acc[h][r] = Zero();
  }
  uint32_t k = 0;
  for (; k + 16 <= args.dim; k += 16) {
    Vec16 key[4];
    HEARTH_UNROLL
    for (int r = 0; r < 4; ++r) key[r] = Load(rows[r] + k);
    HEARTH_UNROLL
    for (int h = 0; h < H; ++h) {
      const Vec16 query = Load(q[h] + k);
      HEARTH_UNROLL
      for (int r = 0; r < 4; ++r) acc[h][r] = Fma(query, key[r], acc[h][r]);
    }
  }
  if (k < args.dim) {
    const uint32_t n = args.dim - k;
    HEARTH_UNROLL
    for (int h = 0; h < H; ++h) {
      const Vec16 query = LoadPart(q[h] + k, n);
      HEARTH_UNROLL
      for (int r = 0; r < 4; ++r)
        acc[h][r] = FmaPart(query, LoadPart(rows[r] + k, n), acc[h][r], n);
    }
  }
  HEARTH_UNROLL
  for (int h = 0; h < H; ++h) {
    _mm_storeu_ps(args.scores + size_t{head + h} * args.count + i, AddLanesOfFour(acc[h]));
  }
}

// scores = q . K of the chosen positions, four at a time for all heads.
HEARTH_ISA_INLINE void PositionDots(const AttendArgs& args) {
  uint32_t i = 0;
  for (; i + 4 <= args.count; i += 4) {
    const uint32_t* at = args.positions + i;
    const float* const rows[4] = {
        args.k + size_t{at[0]} * args.kv_stride, args.k + size_t{at[1]} * args.kv_stride,
        args.k + size_t{at[2]} * args.kv_stride, args.k + size_t{at[3]} * args.kv_stride};
    uint32_t head = 0;
    for (; head + kTileVecs <= args.heads; head += kTileVecs) {
      DotTile<kTileVecs>(args, head, rows, i);
    }
    for (; head < args.heads; ++head) DotTile<1>(args, head, rows, i);
  }
  for (; i < args.count; ++i) {
    const float* key = args.k + size_t{args.positions[i]} * args.kv_stride;
    for (size_t head = 0; head < args.heads; ++head) {
      args.scores[head * args.count + i] = Dot(args.q + head * args.q_stride, key, args.dim);
    }
  }
}

// scores = exp(scale * scores - max) of one head
HEARTH_ISA_INLINE void ScaleAndExp(float* scores, uint32_t count, float factor) {
  const Vec16 scale = Broadcast(factor);
  Vec16 largest = Broadcast(-__builtin_inff());
  uint32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const Vec16 score = Mul(scale, Load(scores + i));
    Store(scores + i, score);
    largest = Max(score, largest);
  }
  float lanes[16];
  Store(lanes, largest);
  float max = lanes[0];
  for (int j = 1; j < 16; ++j) max = lanes[j] > max ? lanes[j] : max;
  for (; i < count; ++i) {
    scores[i] = factor * scores[i];
    max = scores[i] > max ? scores[i] : max;
  }
  for (i = 0; i < count; i += 16) {
    const uint32_t n = PartOf(count - i);
    StorePart(scores + i, Exp(Sub(LoadPart(scores + i, n), Broadcast(max))), n);
  }
}

// out[h][d ...] += sum over positions [begin, end) of p_i * V[pos_i][d ...] for H heads from `head`
// and kVecs vectors, the last one of n lanes: values are loaded once.
template <int H, int kVecs>
HEARTH_ISA_INLINE void AddValues(const AttendArgs& args, uint32_t head, uint32_t begin,
                                 uint32_t end, uint32_t d, uint32_t n) {
  float* const out = args.out + size_t{head} * args.out_stride + d;
  const float* const scores = args.scores + size_t{head} * args.count;
  Vec16 acc[H][kVecs];
  HEARTH_UNROLL
  for (int h = 0; h < H; ++h) {
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c)
      acc[h][c] = LoadPart(out + h * size_t{args.out_stride} + c * 16, n);
  }
  for (uint32_t i = begin; i < end; ++i) {
    const float* v = args.v + size_t{args.positions[i]} * args.kv_stride + d;
    Vec16 value[kVecs];
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) value[c] = LoadPart(v + c * 16, n);
    HEARTH_UNROLL
    for (int h = 0; h < H; ++h) {
      const Vec16 p = Broadcast(scores[h * size_t{args.count} + i]);
      HEARTH_UNROLL
      for (int c = 0; c < kVecs; ++c) acc[h][c] = Fma(p, value[c], acc[h][c]);
    }
  }
  HEARTH_UNROLL
  for (int h = 0; h < H; ++h) {
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      StorePart(out + h * size_t{args.out_stride} + c * 16, acc[h][c], n);
    }
  }
}

// Positions [begin, end) of H heads. The tile is H heads by 16 / H vectors, or kSlabVecs of one.
template <int H>
HEARTH_ISA_INLINE void AddHeads(const AttendArgs& args, uint32_t head, uint32_t begin,
                                uint32_t end) {
  constexpr int kVecs = H == 1 ? kSlabVecs : 4;
  uint32_t d = 0;
  for (; d + kVecs * 16 <= args.dim; d += kVecs * 16) {
    AddValues<H, kVecs>(args, head, begin, end, d, 16);
  }
  for (; d < args.dim; d += 16) {
    AddValues<H, 1>(args, head, begin, end, d, PartOf(args.dim - d));
  }
}

// out = out / (sum of p in order), four heads at a time: the sum of one is a chain of additions.
HEARTH_ISA_INLINE void DivideBySums(const AttendArgs& args) {
  for (uint32_t head = 0; head < args.heads; head += 4) {
    const uint32_t n = args.heads - head < 4 ? args.heads - head : 4;
    const float* scores[4];
    float sum[4] = {};
    for (uint32_t h = 0; h < 4; ++h) {
      scores[h] = args.scores + size_t{head + (h < n ? h : 0)} * args.count;
    }
    for (uint32_t i = 0; i < args.count; ++i) {
      HEARTH_UNROLL
      for (int h = 0; h < 4; ++h) sum[h] = sum[h] + scores[h][i];
    }
    for (uint32_t h = 0; h < n; ++h) {
      const Vec16 total = Broadcast(sum[h]);
      float* const out = args.out + size_t{head + h} * args.out_stride;
      for (uint32_t d = 0; d < args.dim; d += 16) {
        const uint32_t part = PartOf(args.dim - d);
        StorePart(out + d, Div(LoadPart(out + d, part), total), part);
      }
    }
  }
}

// Keys and values pass once for all heads: positions go in chunks whose values stay in the
// second-level cache (64 KiB at 256 values each) while every head adds its share.
HEARTH_ISA_KERNEL void Attend(const AttendArgs& args) {
  constexpr uint32_t kChunkPositions = 64;
  PositionDots(args);
  for (size_t head = 0; head < args.heads; ++head) {
    ScaleAndExp(args.scores + head * args.count, args.count, args.scale);
    for (uint32_t d = 0; d < args.dim; ++d) args.out[head * args.out_stride + d] = 0;
  }
  for (uint32_t begin = 0; begin < args.count; begin += kChunkPositions) {
    const uint32_t end =
        args.count - begin < kChunkPositions ? args.count : begin + kChunkPositions;
    uint32_t head = 0;
    for (; head + kTileVecs <= args.heads; head += kTileVecs) {
      AddHeads<kTileVecs>(args, head, begin, end);
    }
    for (; head < args.heads; ++head) AddHeads<1>(args, head, begin, end);
  }
  DivideBySums(args);
}

}  // namespace hearth::HEARTH_ISA
