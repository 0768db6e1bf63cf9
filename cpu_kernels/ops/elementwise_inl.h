// Shared body of the element-wise operations (definition: scalar/elementwise.cc). No lane depends
// on another. Compiled once by each instruction set, after its vec16_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/elementwise.h"
#include "cpu_kernels/ops/lane_sum_inl.h"

namespace hearth::HEARTH_ISA {

HEARTH_ISA_KERNEL void Silu(const SiluArgs& args) {
  const Vec16 scale = Broadcast(args.scale);
  for (uint64_t i = 0; i < args.count; i += 16) {
    const uint32_t n = PartOf(args.count - i);
    StorePart(args.y + i, Silu(Mul(LoadPart(args.x + i, n), scale)), n);
  }
}

HEARTH_ISA_KERNEL void Sigmoid(const SigmoidArgs& args) {
  const Vec16 x_scale = Broadcast(args.x_scale);
  const Vec16 scale = Broadcast(args.scale);
  for (uint64_t i = 0; i < args.count; i += 16) {
    const uint32_t n = PartOf(args.count - i);
    StorePart(args.y + i, Mul(scale, Sigmoid(Mul(LoadPart(args.x + i, n), x_scale))), n);
  }
}

HEARTH_ISA_KERNEL void Swiglu(const SwigluArgs& args) {
  for (uint64_t i = 0; i < args.count; i += 16) {
    const uint32_t n = PartOf(args.count - i);
    StorePart(args.y + i, Mul(Silu(LoadPart(args.gate + i, n)), LoadPart(args.up + i, n)), n);
  }
}

HEARTH_ISA_KERNEL void Gate(const GateArgs& args) {
  for (uint64_t i = 0; i < args.count; i += 16) {
    const uint32_t n = PartOf(args.count - i);
    const Vec16 z = LoadPart(args.z + i, n);
    const Vec16 gate = args.silu ? Silu(z) : Sigmoid(z);
    StorePart(args.y + i, Mul(LoadPart(args.x + i, n), gate), n);
  }
}

HEARTH_ISA_KERNEL void StreamMix(const StreamMixArgs& args) {
  const Vec16 share = Broadcast(1.0f / static_cast<float>(args.streams));
  for (uint32_t t = 0; t < args.rows; ++t) {
    const size_t row = size_t{t} * args.streams * args.hidden;
    for (uint32_t j = 0; j < args.hidden; j += 16) {
      const uint32_t n = PartOf(args.hidden - j);
      Vec16 acc = Zero();
      for (uint32_t s = 0; s < args.streams; ++s) {
        const size_t at = row + size_t{s} * args.hidden + j;
        acc = Fma(Sigmoid(LoadPart(args.gate + at, n)), LoadPart(args.hn + at, n), acc);
      }
      StorePart(args.u + size_t{t} * args.hidden + j, Mul(acc, share), n);
    }
  }
}

HEARTH_ISA_KERNEL void StreamAdd(const StreamAddArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* y = args.y + size_t{t} * args.hidden;
    for (uint32_t s = 0; s < args.streams; ++s) {
      const size_t stream = size_t{t} * args.streams + s;
      const Vec16 inject = Broadcast(args.inject[stream]);
      float* h = args.h + stream * args.hidden;
      for (uint32_t j = 0; j < args.hidden; j += 16) {
        const uint32_t n = PartOf(args.hidden - j);
        StorePart(h + j, Fma(inject, LoadPart(y + j, n), LoadPart(h + j, n)), n);
      }
    }
  }
}

HEARTH_ISA_KERNEL void Combine(const CombineArgs& args) {
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* weight = args.weight + size_t{t} * args.ranks;
    const float* expert_y = args.expert_y + size_t{t} * args.ranks * args.hidden;
    const Vec16 shared_gate = Broadcast(args.shared_gate[t]);
    for (uint32_t j = 0; j < args.hidden; j += 16) {
      const uint32_t n = PartOf(args.hidden - j);
      const size_t at = size_t{t} * args.hidden + j;
      Vec16 acc = Zero();
      for (uint32_t r = 0; r < args.ranks; ++r) {
        acc = Fma(Broadcast(weight[r]), LoadPart(expert_y + size_t{r} * args.hidden + j, n), acc);
      }
      StorePart(args.out + at, Fma(shared_gate, LoadPart(args.shared + at, n), acc), n);
    }
  }
}

HEARTH_ISA_KERNEL void Rotary(const RotaryArgs& args) {
  const uint32_t half = args.rotary_dim / 2;
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* cos_row = args.cos + size_t{t} * half;
    const float* sin_row = args.sin + size_t{t} * half;
    for (uint32_t head = 0; head < args.heads; ++head) {
      float* x = args.x + size_t{t} * args.row_stride + size_t{head} * args.head_stride;
      for (uint32_t i = 0; i < half; i += 16) {
        const uint32_t n = PartOf(half - i);
        const Vec16 a = LoadPart(x + i, n);
        const Vec16 b = LoadPart(x + half + i, n);
        const Vec16 cos = LoadPart(cos_row + i, n);
        const Vec16 sin = LoadPart(sin_row + i, n);
        StorePart(x + i, FmaMinus(a, cos, Mul(b, sin)), n);
        StorePart(x + half + i, Fma(b, cos, Mul(a, sin)), n);
      }
    }
  }
}

HEARTH_ISA_KERNEL void Conv(const ConvArgs& args) {
  const size_t w_stride = args.w_stride != 0 ? args.w_stride : args.x_stride;
  const size_t step = size_t{args.dilation} * args.x_stride;
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + size_t{t} * args.x_stride;
    float* out = args.out + size_t{t} * args.out_stride;
    for (uint32_t c = args.channel_begin; c < args.channel_end; c += 16) {
      const uint32_t n = PartOf(args.channel_end - c);
      Vec16 acc = Zero();
      for (uint32_t j = 0; j < args.taps; ++j) {
        acc = Fma(LoadPart(args.w + j * w_stride + c, n), LoadPart(x + j * step + c, n), acc);
      }
      StorePart(out + c, acc, n);
    }
  }
}

}  // namespace hearth::HEARTH_ISA
