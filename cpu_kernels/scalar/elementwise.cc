// Element-wise operations, scalar: the definition. Contracts: ops/elementwise.h.
#include <cmath>

#include "cpu_kernels/scalar/exp.h"
#include "cpu_kernels/scalar/kernels.h"

namespace hearth::scalar {

void Silu(const SiluArgs& args) {
  for (uint64_t i = 0; i < args.count; ++i) args.y[i] = SiluOf(args.x[i] * args.scale);
}

void Sigmoid(const SigmoidArgs& args) {
  for (uint64_t i = 0; i < args.count; ++i) {
    args.y[i] = args.scale * SigmoidOf(args.x[i] * args.x_scale);
  }
}

void Swiglu(const SwigluArgs& args) {
  for (uint64_t i = 0; i < args.count; ++i) args.y[i] = SiluOf(args.gate[i]) * args.up[i];
}

void Gate(const GateArgs& args) {
  for (uint64_t i = 0; i < args.count; ++i) {
    args.y[i] = args.x[i] * (args.silu ? SiluOf(args.z[i]) : SigmoidOf(args.z[i]));
  }
}

void StreamMix(const StreamMixArgs& args) {
  const float share = 1.0f / static_cast<float>(args.streams);
  for (uint32_t t = 0; t < args.rows; ++t) {
    const size_t row = size_t{t} * args.streams * args.hidden;
    for (uint32_t j = 0; j < args.hidden; ++j) {
      float acc = 0;
      for (uint32_t s = 0; s < args.streams; ++s) {
        const size_t at = row + size_t{s} * args.hidden + j;
        acc = std::fma(SigmoidOf(args.gate[at]), args.hn[at], acc);
      }
      args.u[size_t{t} * args.hidden + j] = acc * share;
    }
  }
}

void StreamAdd(const StreamAddArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* y = args.y + size_t{t} * args.hidden;
    for (uint32_t s = 0; s < args.streams; ++s) {
      const size_t stream = size_t{t} * args.streams + s;
      float* h = args.h + stream * args.hidden;
      for (uint32_t j = 0; j < args.hidden; ++j) h[j] = std::fma(args.inject[stream], y[j], h[j]);
    }
  }
}

void Combine(const CombineArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    for (uint32_t j = 0; j < args.hidden; ++j) {
      float acc = 0;
      for (uint32_t r = 0; r < args.ranks; ++r) {
        const size_t rank = size_t{t} * args.ranks + r;
        acc = std::fma(args.weight[rank], args.expert_y[rank * args.hidden + j], acc);
      }
      const size_t at = size_t{t} * args.hidden + j;
      args.out[at] = std::fma(args.shared_gate[t], args.shared[at], acc);
    }
  }
}

void Rotary(const RotaryArgs& args) {
  const uint32_t half = args.rotary_dim / 2;
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* cos = args.cos + size_t{t} * half;
    const float* sin = args.sin + size_t{t} * half;
    for (uint32_t head = 0; head < args.heads; ++head) {
      float* x = args.x + size_t{t} * args.row_stride + size_t{head} * args.head_stride;
      for (uint32_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[half + i];
        x[i] = std::fma(a, cos[i], -(b * sin[i]));
        x[half + i] = std::fma(b, cos[i], a * sin[i]);
      }
    }
  }
}

void Conv(const ConvArgs& args) {
  const uint32_t w_stride = args.w_stride != 0 ? args.w_stride : args.x_stride;
  for (uint32_t t = 0; t < args.rows; ++t) {
    for (uint32_t c = args.channel_begin; c < args.channel_end; ++c) {
      float acc = 0;
      for (uint32_t j = 0; j < args.taps; ++j) {
        const size_t source = size_t{t} + size_t{j} * args.dilation;
        acc = std::fma(args.w[size_t{j} * w_stride + c], args.x[source * args.x_stride + c], acc);
      }
      args.out[size_t{t} * args.out_stride + c] = acc;
    }
  }
}

}  // namespace hearth::scalar
