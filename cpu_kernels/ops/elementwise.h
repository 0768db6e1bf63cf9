// The element-wise and small-reduction operations of the dense path. All are fp32, row by row: the
// bits of a row do not depend on the other rows, on the share, nor on the instruction set.
//
// exp(v) is one written-out polynomial: v clamped to [-87.3, 88.7]; n = round-half-to-even(v * log2
// e); r = fma(n, -ln2_hi, v), then fma(n, -ln2_lo, r); a degree-6 polynomial in r by Horner's rule
// with fma; scaled by 2^n. sigmoid(v) = 1 / (1 + exp(-v)); silu(v) = v * sigmoid(v). Sums over a
// row use sixteen accumulators, as MatmulRowsArgs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

enum class NormWeight : uint8_t { kOnePlus, kPlain };  // y * (1 + w) or y * w

// y = x / sqrt(mean(x^2) + epsilon) * weight, per group of `group` values: mean = sum / group,
// factor = 1 / sqrt(mean + epsilon), y = (x * factor) * weight, each rounded. Group g of a row uses
// w[(g * group) % w_count ...]: w_count is cols (one weight each) or group (shared by all groups).
struct RmsNormArgs {
  const float* x = nullptr;  // (rows, cols)
  uint32_t x_stride = 0;
  float* y = nullptr;  // (rows, cols); may equal x
  uint32_t y_stride = 0;
  const float* w = nullptr;
  uint32_t w_count = 0;
  NormWeight weight = NormWeight::kOnePlus;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t group = 0;  // divides cols
  float epsilon = 0;
};

// y = silu(x * scale), element by element; y may equal x.
struct SiluArgs {
  const float* x = nullptr;
  float* y = nullptr;
  uint64_t count = 0;
  float scale = 1;
};

// y = scale * sigmoid(x * x_scale); y may equal x.
struct SigmoidArgs {
  const float* x = nullptr;
  float* y = nullptr;
  uint64_t count = 0;
  float x_scale = 1;
  float scale = 1;
};

// y = silu(gate) * up
struct SwigluArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* y = nullptr;
  uint64_t count = 0;
};

// y = x * gate(z), gate = sigmoid or silu; y may equal x.
struct GateArgs {
  const float* x = nullptr;
  const float* z = nullptr;
  float* y = nullptr;
  uint64_t count = 0;
  bool silu = false;
};

// The read of a hyper-connection: u[j] = (sum over s in order of sigmoid(gate[s][j]) * hn[s][j]) /
// streams, each product and sum rounded on its own (fma(sigmoid, hn, acc)), the division as a
// multiply by 1/streams.
struct StreamMixArgs {
  const float* gate = nullptr;  // (rows, streams * hidden), before the sigmoid
  const float* hn = nullptr;    // (rows, streams * hidden)
  float* u = nullptr;           // (rows, hidden)
  uint32_t rows = 0;
  uint32_t streams = 0;
  uint32_t hidden = 0;
};

// The write of a hyper-connection: h[s][j] = fma(inject[s], y[j], h[s][j]).
struct StreamAddArgs {
  float* h = nullptr;             // (rows, streams * hidden)
  const float* y = nullptr;       // (rows, hidden)
  const float* inject = nullptr;  // (rows, streams)
  uint32_t rows = 0;
  uint32_t streams = 0;
  uint32_t hidden = 0;
};

// The end of a MoE block: acc = 0; acc = fma(weight[r], y[r], acc) for ranks r in order; then
// out = fma(shared_gate, shared, acc), shared_gate already through its sigmoid.
struct CombineArgs {
  const float* expert_y = nullptr;     // (rows, ranks, hidden)
  const float* weight = nullptr;       // (rows, ranks)
  const float* shared = nullptr;       // (rows, hidden)
  const float* shared_gate = nullptr;  // (rows)
  float* out = nullptr;                // (rows, hidden)
  uint32_t rows = 0;
  uint32_t ranks = 0;
  uint32_t hidden = 0;
};

// Rotary embedding of split halves in place on the first `rotary_dim` values of each head: pairs
// (i, i + rotary_dim/2), y_i = fma(x_i, cos_i, -(x_j * sin_i)), y_j = fma(x_j, cos_i, x_i * sin_i).
struct RotaryArgs {
  float* x = nullptr;  // (rows, heads, head_stride)
  uint32_t row_stride = 0;
  uint32_t head_stride = 0;
  const float* cos = nullptr;  // (rows, rotary_dim / 2)
  const float* sin = nullptr;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t rotary_dim = 0;
};

// Depthwise causal convolution over time: out[t][c] = sum over taps j in order (fma, from zero) of
// w[c][j] * x[t + j * dilation][c]. `x` starts (taps - 1) * dilation rows before the first output
// row.
struct ConvArgs {
  const float* x = nullptr;  // (rows + (taps - 1) * dilation, channels), row stride x_stride
  uint32_t x_stride = 0;
  const float* w =
      nullptr;            // (taps, channels): transposed from the checkpoint's (channels, 1, taps)
  uint32_t w_stride = 0;  // channels of one tap of w; 0 means x_stride
  float* out = nullptr;   // (rows, channels), row stride out_stride
  uint32_t out_stride = 0;
  uint32_t rows = 0;           // output rows
  uint32_t channel_begin = 0;  // this call's share
  uint32_t channel_end = 0;
  uint32_t taps = 0;
  uint32_t dilation = 1;
};

}  // namespace hearth
