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

// Query heads that share keys and values, over `count` >= 1 positions. For each head: s_i = scale *
// (q . K[pos_i]), dots as above; p = exp(s - max); out = sum over i in order of p_i * V[pos_i] (fma
// from zero), divided by the sum of p in order. exp as in elementwise.h. The bits of a head do not
// depend on how many one call covers; the memory that keys and values cost does.
struct AttendArgs {
  const float* q = nullptr;  // (heads, dim), row stride q_stride
  const float* k = nullptr;  // (positions, dim), row stride kv_stride
  const float* v = nullptr;
  uint32_t kv_stride = 0;
  const uint32_t* positions = nullptr;  // (count), ascending
  uint32_t count = 0;
  uint32_t dim = 0;
  float scale = 1;
  float* scores = nullptr;  // scratch (heads, count)
  float* out = nullptr;     // (heads, dim), row stride out_stride
  uint32_t heads = 1;
  uint32_t q_stride = 0;  // either may stay 0 for one head
  uint32_t out_stride = 0;
};

}  // namespace hearth
