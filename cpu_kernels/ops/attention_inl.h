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

// scores = q . K of the chosen positions, four at a time.
HEARTH_ISA_INLINE void PositionDots(const AttendArgs& args) {
  uint32_t i = 0;
  for (; i + 4 <= args.count; i += 4) {
    const uint32_t* at = args.positions + i;
    const float* const rows[4] = {
        args.k + size_t{at[0]} * args.kv_stride, args.k + size_t{at[1]} * args.kv_stride,
        args.k + size_t{at[2]} * args.kv_stride, args.k + size_t{at[3]} * args.kv_stride};
    _mm_storeu_ps(args.scores + i, DotFour(args.q, rows, args.dim));
  }
  for (; i < args.count; ++i) {
    args.scores[i] = Dot(args.q, args.k + size_t{args.positions[i]} * args.kv_stride, args.dim);
  }
}

// scores = exp(scale * scores - max)
HEARTH_ISA_INLINE void ScaleAndExp(const AttendArgs& args) {
  const Vec16 scale = Broadcast(args.scale);
  Vec16 largest = Broadcast(-__builtin_inff());
  uint32_t i = 0;
  for (; i + 16 <= args.count; i += 16) {
    const Vec16 score = Mul(scale, Load(args.scores + i));
    Store(args.scores + i, score);
    largest = Max(score, largest);
  }
  float lanes[16];
  Store(lanes, largest);
  float max = lanes[0];
  for (int j = 1; j < 16; ++j) max = lanes[j] > max ? lanes[j] : max;
  for (; i < args.count; ++i) {
    args.scores[i] = args.scale * args.scores[i];
    max = args.scores[i] > max ? args.scores[i] : max;
  }
  for (i = 0; i < args.count; i += 16) {
    const uint32_t n = PartOf(args.count - i);
    StorePart(args.scores + i, Exp(Sub(LoadPart(args.scores + i, n), Broadcast(max))), n);
  }
}

// out[d ...] = sum over i of p_i * V[pos_i][d ...] for kVecs vectors, the last one of n lanes, over
// the sum of p. The chain of the sum runs beside the loads of V.
template <int kVecs>
HEARTH_ISA_INLINE void WeightedValues(const AttendArgs& args, uint32_t d, uint32_t n) {
  Vec16 acc[kVecs];
  HEARTH_UNROLL
  for (int c = 0; c < kVecs; ++c) acc[c] = Zero();
  float sum = 0;
  for (uint32_t i = 0; i < args.count; ++i) {
    const float* v = args.v + size_t{args.positions[i]} * args.kv_stride + d;
    const Vec16 p = Broadcast(args.scores[i]);
    sum = sum + args.scores[i];
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) acc[c] = Fma(p, LoadPart(v + c * 16, n), acc[c]);
  }
  const Vec16 total = Broadcast(sum);
  HEARTH_UNROLL
  for (int c = 0; c < kVecs; ++c) StorePart(args.out + d + c * 16, Div(acc[c], total), n);
}

HEARTH_ISA_KERNEL void Attend(const AttendArgs& args) {
  PositionDots(args);
  ScaleAndExp(args);
  uint32_t d = 0;
  for (; d + kSlabVecs * 16 <= args.dim; d += kSlabVecs * 16)
    WeightedValues<kSlabVecs>(args, d, 16);
  for (; d < args.dim; d += 16) WeightedValues<1>(args, d, PartOf(args.dim - d));
}

}  // namespace hearth::HEARTH_ISA
