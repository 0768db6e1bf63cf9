// Sparse attention (QSA): block scores of the indexer, and softmax attention over chosen positions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

// score[b] = (sum over heads h in order of max(0, q_h . key_b)) / sqrt(dim) for blocks [0,
// block_count). max(0, x) keeps a NaN. Dots as in ops/matmul.h, MatmulRowsArgs; the division as a
// multiply by `scale` = 1/sqrt(dim).
struct BlockScoreArgs {
  const float* q = nullptr;     // (heads, dim)
  const float* keys = nullptr;  // (block_count, dim)
  float* score = nullptr;       // (block_count)
  uint32_t heads = 0;
  uint32_t dim = 0;
  uint32_t block_count = 0;
  float scale = 1;
};

// One query head over `count` >= 1 positions: s_i = scale * (q . K[pos_i]), dots as above; p =
// exp(s - max); out = sum over i in order of p_i * V[pos_i] (fma from zero), divided by the sum of
// p in order. exp as in elementwise.h.
struct AttendArgs {
  const float* q = nullptr;  // (dim)
  const float* k = nullptr;  // (positions, dim), row stride kv_stride
  const float* v = nullptr;
  uint32_t kv_stride = 0;
  const uint32_t* positions = nullptr;  // (count), ascending
  uint32_t count = 0;
  uint32_t dim = 0;
  float scale = 1;
  float* scores = nullptr;  // scratch (count)
  float* out = nullptr;     // (dim)
};

}  // namespace hearth
