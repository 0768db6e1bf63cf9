// The gated residual streams: what a block reads is a gated mean of the normalised streams, what it
// writes is injected into each stream with a weight of its own.
#include "runtime/backend/cpu/pass.h"

namespace hearth {

void ReadHyperConnection(PassContext& pass, const HyperConnectionWeights& w) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& b = pass.buffers;
  const uint32_t d = g.stream_dim();
  const float per_stream = 1.0f / static_cast<float>(g.stream_count);
  const auto normalise = [&](uint32_t begin, uint32_t end) {
    pass.kernels.rms_norm.fn({.x = b.h.data() + size_t{begin} * d,
                              .x_stride = d,
                              .y = b.hn.data() + size_t{begin} * d,
                              .y_stride = d,
                              .w = w.norm.data(),
                              .w_count = d,
                              .weight = NormWeight::kOnePlus,
                              .rows = end - begin,
                              .cols = d,
                              .group = g.hidden,
                              .epsilon = g.norm_epsilon});
  };
  ForRowRanges(pass, normalise);
  const ActivationRows hn{.x = b.hn.data(), .x_stride = d, .rows = pass.rows, .cols = d};
  if (w.inject.rows != 0) {
    pass.projector.Run(
        hn, b.quantized,
        {{&w.down, b.low.data(), g.hc_rank}, {&w.inject, b.inject.data(), g.stream_count}});
    pass.kernels.sigmoid.fn({.x = b.inject.data(),
                             .y = b.inject.data(),
                             .count = uint64_t{pass.rows} * g.stream_count,
                             .x_scale = per_stream,
                             .scale = 2.0f});
  } else {
    pass.projector.Run(hn, b.quantized, {{&w.down, b.low.data(), g.hc_rank}});
  }
  pass.kernels.silu.fn({.x = b.low.data(),
                        .y = b.low.data(),
                        .count = uint64_t{pass.rows} * g.hc_rank,
                        .scale = per_stream});
  pass.projector.Run(
      {.x = b.low.data(), .x_stride = g.hc_rank, .rows = pass.rows, .cols = g.hc_rank}, b.quantized,
      {{&w.up, b.gate.data(), d}});
  ForRowRanges(pass, [&](uint32_t begin, uint32_t end) {
    pass.kernels.stream_mix.fn({.gate = b.gate.data() + size_t{begin} * d,
                                .hn = b.hn.data() + size_t{begin} * d,
                                .u = b.u.data() + size_t{begin} * g.hidden,
                                .rows = end - begin,
                                .streams = g.stream_count,
                                .hidden = g.hidden});
  });
}

void WriteHyperConnection(PassContext& pass) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& b = pass.buffers;
  const uint32_t d = g.stream_dim();
  ForRowRanges(pass, [&](uint32_t begin, uint32_t end) {
    pass.kernels.stream_add.fn({.h = b.h.data() + size_t{begin} * d,
                                .y = b.y.data() + size_t{begin} * g.hidden,
                                .inject = b.inject.data() + size_t{begin} * g.stream_count,
                                .rows = end - begin,
                                .streams = g.stream_count,
                                .hidden = g.hidden});
  });
}

}  // namespace hearth
