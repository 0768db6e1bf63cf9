// The gated delta rule, scalar: the definition of both forms. Contracts: ops/gdn.h.
#include <cmath>

#include "cpu_kernels/scalar/exp.h"
#include "cpu_kernels/scalar/kernels.h"

namespace hearth::scalar {
namespace {

// One value column v of one row: reads and writes column v of the state.
void RecurrentColumn(const GdnRecurrentArgs& args, const float* state, uint32_t t, uint32_t v) {
  const float* key = args.k + size_t{t} * args.qkv_stride;
  const float* query = args.q + size_t{t} * args.qkv_stride;
  const float decay = args.decay[size_t{t} * args.gate_stride];
  const float beta = args.beta[size_t{t} * args.gate_stride];
  float read = 0;
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    const size_t at = size_t{k} * args.value_dim + v;
    args.state_out[at] = decay * state[at];
    read = std::fma(args.state_out[at], key[k], read);
  }
  const float delta = beta * (args.v[size_t{t} * args.qkv_stride + v] - read);
  float out = 0;
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    const size_t at = size_t{k} * args.value_dim + v;
    args.state_out[at] = std::fma(key[k], delta, args.state_out[at]);
    out = std::fma(args.state_out[at], query[k], out);
  }
  if (args.out != nullptr) args.out[size_t{t} * args.out_stride + v] = out;
}

// The regions of the scratch of one chunk of `rows` rows.
struct Chunk {
  uint32_t rows;
  const float* q;
  const float* k;
  const float* v;
  const float* g;
  const float* beta;
  float* out;          // null: not wanted
  float* a;            // (rows, rows): A, strictly lower
  float* p;            // (rows, rows): P, lower with the diagonal
  float* delta;        // (rows, value_dim): D
  float* decay_to;     // (rows): exp(G[i]), from the chunk's start to row i
  float* decay_after;  // (rows): exp(L[last][i]), from row i to the chunk's end
};

float Dot(const float* a, const float* b, uint32_t count) {
  float acc = 0;
  for (uint32_t k = 0; k < count; ++k) acc = std::fma(a[k], b[k], acc);
  return acc;
}

// Column v of a row vector times the state.
float TimesState(const float* row, const GdnChunkedArgs& args, uint32_t v) {
  float acc = 0;
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    acc = std::fma(row[k], args.state[size_t{k} * args.value_dim + v], acc);
  }
  return acc;
}

void ChunkDecays(const GdnChunkedArgs& args, const Chunk& c) {
  float from_start = 0;
  for (uint32_t i = 0; i < c.rows; ++i) {
    from_start = from_start + c.g[size_t{i} * args.gate_stride];
    c.decay_to[i] = ExpOf(from_start);
    float to_end = 0;
    for (uint32_t t = i + 1; t < c.rows; ++t) to_end = to_end + c.g[size_t{t} * args.gate_stride];
    c.decay_after[i] = ExpOf(to_end);
  }
}

void ChunkMatrices(const GdnChunkedArgs& args, const Chunk& c) {
  for (uint32_t j = 0; j < c.rows; ++j) {
    const float* key = c.k + size_t{j} * args.qkv_stride;
    float between = 0;
    for (uint32_t i = j; i < c.rows; ++i) {
      if (i > j) between = between + c.g[size_t{i} * args.gate_stride];
      const float decay = ExpOf(between);
      const size_t row = size_t{i} * args.qkv_stride;
      const size_t at = size_t{i} * c.rows + j;
      if (i > j) {
        const float beta = c.beta[size_t{i} * args.gate_stride];
        c.a[at] = beta * (Dot(c.k + row, key, args.key_dim) * decay);
      }
      c.p[at] = Dot(c.q + row, key, args.key_dim) * decay;
    }
  }
}

void ChunkColumn(const GdnChunkedArgs& args, const Chunk& c, uint32_t v) {
  for (uint32_t i = 0; i < c.rows; ++i) {
    const size_t row = size_t{i} * args.qkv_stride;
    const float beta = c.beta[size_t{i} * args.gate_stride];
    const float read = TimesState(c.k + row, args, v);
    float delta = beta * (c.v[row + v] - c.decay_to[i] * read);
    float out = c.decay_to[i] * TimesState(c.q + row, args, v);
    for (uint32_t j = 0; j < i; ++j) {
      const float d = c.delta[size_t{j} * args.value_dim + v];
      delta = std::fma(-c.a[size_t{i} * c.rows + j], d, delta);
      out = std::fma(c.p[size_t{i} * c.rows + j], d, out);
    }
    c.delta[size_t{i} * args.value_dim + v] = delta;
    out = std::fma(c.p[size_t{i} * c.rows + i], delta, out);
    if (c.out != nullptr) c.out[size_t{i} * args.out_stride + v] = out;
  }
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    float* s = args.state + size_t{k} * args.value_dim + v;
    *s = c.decay_to[c.rows - 1] * *s;
    for (uint32_t i = 0; i < c.rows; ++i) {
      const float key = c.decay_after[i] * c.k[size_t{i} * args.qkv_stride + k];
      *s = std::fma(key, c.delta[size_t{i} * args.value_dim + v], *s);
    }
  }
}

}  // namespace

void GdnRecurrent(const GdnRecurrentArgs& args) {
  if (args.rows == 0) {
    for (size_t i = 0; i < size_t{args.key_dim} * args.value_dim; ++i) {
      args.state_out[i] = args.state_in[i];
    }
  }
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* state = t == 0 ? args.state_in : args.state_out;
    for (uint32_t v = 0; v < args.value_dim; ++v) RecurrentColumn(args, state, t, v);
  }
}

void GdnChunked(const GdnChunkedArgs& args) {
  for (uint32_t begin = 0; begin < args.rows; begin += args.chunk_rows) {
    const size_t row = size_t{begin} * args.qkv_stride;
    const size_t gate = size_t{begin} * args.gate_stride;
    Chunk c;
    c.rows = args.rows - begin < args.chunk_rows ? args.rows - begin : args.chunk_rows;
    c.q = args.q + row;
    c.k = args.k + row;
    c.v = args.v + row;
    c.g = args.log_decay + gate;
    c.beta = args.beta + gate;
    c.out = args.out == nullptr ? nullptr : args.out + size_t{begin} * args.out_stride;
    c.a = args.scratch;
    c.p = c.a + size_t{c.rows} * c.rows;
    c.delta = c.p + size_t{c.rows} * c.rows;
    c.decay_to = c.delta + size_t{c.rows} * args.value_dim;
    c.decay_after = c.decay_to + c.rows;
    ChunkDecays(args, c);
    ChunkMatrices(args, c);
    for (uint32_t v = 0; v < args.value_dim; ++v) ChunkColumn(args, c, v);
  }
}

}  // namespace hearth::scalar
