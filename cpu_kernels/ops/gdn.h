// The gated delta rule of one value head. State S is (key_dim, value_dim), row-major fp32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

// x = x / sqrt(sum(x^2) + 1e-6) * scale per head of `dim` values, in place; the sum as in
// ops/elementwise.h. factor = (1 / sqrt(sum + 1e-6)) * scale, x = x * factor, each rounded.
struct L2NormArgs {
  float* x = nullptr;  // (rows, heads * dim), row stride
  uint32_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t dim = 0;
  float scale = 1;
};

// Recurrent form, rows in order; k runs in order in each sum, by fma from zero:
//   S = decay * S; r[v] = sum over k of S[k][v] * key[k]; d[v] = beta * (value[v] - r[v]);
//   S[k][v] = fma(key[k], d[v], S[k][v]); out[v] = sum over k of S[k][v] * query[k]
struct GdnRecurrentArgs {
  const float* q =
      nullptr;  // (rows, key_dim) of this head, row stride qkv_stride; normalised and scaled
  const float* k = nullptr;
  const float* v = nullptr;  // (rows, value_dim)
  uint32_t qkv_stride = 0;
  const float* decay = nullptr;  // (rows): exp(g), row stride gate_stride
  const float* beta = nullptr;
  uint32_t gate_stride = 0;
  const float* state_in = nullptr;  // may equal state_out
  float* state_out = nullptr;
  float* out = nullptr;  // (rows, value_dim), row stride out_stride; null: only the state is wanted
  uint32_t out_stride = 0;
  uint32_t rows = 0;
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
};

// Chunked form of the same map for many rows: equal in real arithmetic, not in bits. Rows go in
// chunks of `chunk_rows`; a short last chunk is computed as it is. Within a chunk, rows i and j <=
// i, S the state before the chunk (the equations of the design's MODEL.md, 2.3, with the two solves
// joined into one):
//   L[i][j] = g[j+1] + ... + g[i], added in order; G[i] = g[first] + ... + g[i] likewise
//   A[i][j] = beta[i] * ((k_i . k_j) * exp(L[i][j])) for j < i;  P[i][j] = (q_i . k_j) *
//   exp(L[i][j]) R[i] = beta[i] * (v_i - exp(G[i]) * (k_i S));  D[i] = R[i] - sum over j < i of
//   A[i][j] D[j] out_i = exp(G[i]) * (q_i S) + sum over j <= i of P[i][j] D[j] S = exp(G[last]) * S
//   + sum over i of (exp(L[last][i]) * k_i)^T D[i]
// Every sum runs in order by fma: the dots from zero, the others from the term written before them
// (which is a rounded product; a minus is an fma with -A).
struct GdnChunkedArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  uint32_t qkv_stride = 0;
  const float* log_decay = nullptr;  // (rows): g <= 0
  const float* beta = nullptr;
  uint32_t gate_stride = 0;
  float* state = nullptr;  // in and out
  float* out = nullptr;    // (rows, value_dim); null: only the state is wanted
  uint32_t out_stride = 0;
  uint32_t rows = 0;
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  uint32_t chunk_rows = 64;
  float* scratch = nullptr;  // GdnChunkedScratchFloats(...)
};

// Rows of A and P, and the transposed keys, are padded to whole vectors of sixteen.
constexpr size_t GdnChunkedScratchFloats(uint32_t chunk_rows, uint32_t key_dim,
                                         uint32_t value_dim) {
  const size_t c = chunk_rows;
  const size_t padded = (c + 15) / 16 * 16;
  return c * padded * 2 + padded * key_dim + c * value_dim + padded * 2;
}

}  // namespace hearth
