// Sparse attention, scalar: the definition. Contracts: ops/attention.h.
#include <cmath>

#include "cpu_kernels/scalar/exp.h"
#include "cpu_kernels/scalar/kernels.h"
#include "cpu_kernels/scalar/lane_sum.h"

namespace hearth::scalar {

void BlockScore(const BlockScoreArgs& args) {
  for (uint32_t b = 0; b < args.block_count; ++b) {
    const float* key = args.keys + size_t{b} * args.dim;
    float acc = 0;
    for (uint32_t head = 0; head < args.heads; ++head) {
      const float dot = DotOf(args.q + size_t{head} * args.dim, key, args.dim);
      acc = acc + (dot < 0 ? 0.0f : dot);
    }
    args.score[b] = acc * args.scale;
  }
}

namespace {

void AttendHead(const AttendArgs& args, const float* q, float* scores, float* out) {
  float max = -INFINITY;
  for (uint32_t i = 0; i < args.count; ++i) {
    const float* key = args.k + size_t{args.positions[i]} * args.kv_stride;
    scores[i] = args.scale * DotOf(q, key, args.dim);
    max = scores[i] > max ? scores[i] : max;
  }
  float sum = 0;
  for (uint32_t i = 0; i < args.count; ++i) {
    scores[i] = ExpOf(scores[i] - max);
    sum = sum + scores[i];
  }
  for (uint32_t d = 0; d < args.dim; ++d) {
    float acc = 0;
    for (uint32_t i = 0; i < args.count; ++i) {
      acc = std::fma(scores[i], args.v[size_t{args.positions[i]} * args.kv_stride + d], acc);
    }
    out[d] = acc / sum;
  }
}

}  // namespace

void Attend(const AttendArgs& args) {
  for (size_t head = 0; head < args.heads; ++head) {
    AttendHead(args, args.q + head * args.q_stride, args.scores + head * args.count,
               args.out + head * args.out_stride);
  }
}

}  // namespace hearth::scalar
