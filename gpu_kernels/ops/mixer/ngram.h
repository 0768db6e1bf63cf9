// What reads the hashed n-gram embedding (runtime/backend/cpu/ngram_block.cc): a gate per stream,
// a dilated causal convolution over time, and the sum with the residual streams.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

// D = streams * hidden.
//   K = RmsNorm(key; norm_key), Q = RmsNorm(h; norm_query), one group per stream
//   gate[s] = sigmoid(sign(a) * sqrt(max(|a|, 1e-6))), a = dot(K[s], Q[s]) / sqrt(hidden)
//   G[s][j] = gate[s] * value[j];  X = RmsNorm(G; norm_conv), one group per stream
//   h += G + silu(sum over taps j of conv[j] * X at position p - (taps - 1 - j) * dilation)
// Earlier positions than the segment's first come from GpuSegment::ngram_ring, which also takes the
// rows of X; those before position 0 are zero.
struct GpuNgramArgs {
  GpuPassTable pass;
  const float* key = nullptr;    // (rows, D): key projection of the embedding
  const float* value = nullptr;  // (rows, hidden)
  const float* norm_key = nullptr;
  const float* norm_query = nullptr;
  const float* norm_conv = nullptr;  // each (D)
  const float* conv = nullptr;       // (taps, D)
  float* h = nullptr;                // (rows, D), in and out
  float* gated = nullptr;            // (rows, D) scratch: G
  float* conv_in = nullptr;          // (rows, D) scratch: X
  float epsilon = 0;
  uint32_t streams = 0;
  uint32_t hidden = 0;  // a multiple of 32, at most kStreamGroupMax
  uint32_t taps = 0;    // 1 to 8; (taps - 1) * dilation <= ring_rows / 2
  uint32_t dilation = 1;
  bool window = true;  // false: a prompt, whose segments may be longer than the ring
};

// Two launches, three for a prompt. Enqueues and returns.
absl::Status LaunchNgram(const GpuNgramArgs& args, CudaStreamView stream);

}  // namespace hearth
