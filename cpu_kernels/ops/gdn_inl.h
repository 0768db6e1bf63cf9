// Shared body of the recurrent gated delta rule (definition: scalar/gdn.cc). Compiled once by each
// instruction set, after its vec16_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/gdn.h"
#include "cpu_kernels/ops/lane_sum_inl.h"

namespace hearth::HEARTH_ISA {

// Value columns [v, v + 16 * kVecs) of one row, with n lanes in each vector. Two passes over these
// columns of the state: the first only reads (decay * S is cheaper to repeat than to store), the
// second writes.
template <int kVecs>
HEARTH_ISA_INLINE void RecurrentStep(const GdnRecurrentArgs& args, const float* state, uint32_t t,
                                     uint32_t v, uint32_t n) {
  const float* key = args.k + size_t{t} * args.qkv_stride;
  const float* query = args.q + size_t{t} * args.qkv_stride;
  const Vec16 decay = Broadcast(args.decay[size_t{t} * args.gate_stride]);
  const Vec16 beta = Broadcast(args.beta[size_t{t} * args.gate_stride]);
  Vec16 delta[kVecs], out[kVecs];
  HEARTH_UNROLL
  for (int c = 0; c < kVecs; ++c) delta[c] = out[c] = Zero();
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    const float* from = state + size_t{k} * args.value_dim + v;
    const Vec16 key_k = Broadcast(key[k]);
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      delta[c] = Fma(Mul(decay, LoadPart(from + c * 16, n)), key_k, delta[c]);
    }
  }
  const float* value = args.v + size_t{t} * args.qkv_stride + v;
  HEARTH_UNROLL
  for (int c = 0; c < kVecs; ++c) {
    delta[c] = Mul(beta, Sub(LoadPart(value + c * 16, n), delta[c]));
  }
  for (uint32_t k = 0; k < args.key_dim; ++k) {
    const size_t at = size_t{k} * args.value_dim + v;
    const Vec16 key_k = Broadcast(key[k]);
    const Vec16 query_k = Broadcast(query[k]);
    HEARTH_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      const Vec16 s = Fma(key_k, delta[c], Mul(decay, LoadPart(state + at + c * 16, n)));
      StorePart(args.state_out + at + c * 16, s, n);
      out[c] = Fma(s, query_k, out[c]);
    }
  }
  if (args.out == nullptr) return;
  float* to = args.out + size_t{t} * args.out_stride + v;
  HEARTH_UNROLL
  for (int c = 0; c < kVecs; ++c) StorePart(to + c * 16, out[c], n);
}

template <int kVecs>
HEARTH_ISA_INLINE void RecurrentColumns(const GdnRecurrentArgs& args, uint32_t v, uint32_t n) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    RecurrentStep<kVecs>(args, t == 0 ? args.state_in : args.state_out, t, v, n);
  }
}

HEARTH_ISA_KERNEL void GdnRecurrent(const GdnRecurrentArgs& args) {
  if (args.rows == 0) {
    const size_t count = size_t{args.key_dim} * args.value_dim;
    for (size_t i = 0; i < count; ++i) args.state_out[i] = args.state_in[i];
    return;
  }
  constexpr uint32_t kSlab = kSlabVecs * 16;
  uint32_t v = 0;
  for (; v + kSlab <= args.value_dim; v += kSlab) RecurrentColumns<kSlabVecs>(args, v, 16);
  for (; v < args.value_dim; v += 16) RecurrentColumns<1>(args, v, PartOf(args.value_dim - v));
}

}  // namespace hearth::HEARTH_ISA
