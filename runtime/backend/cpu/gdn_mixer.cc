// Gated DeltaNet: projections, causal convolution, the gated delta rule per value head, gated norm.
#include <algorithm>
#include <cmath>

#include "runtime/backend/cpu/pass.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint64_t kParallelChannelsMin = 65536;  // row-channels worth a fork-join

// Convolves and normalises the rows of one segment: out (rows, channels), q | k | v, q scaled by
// 1/sqrt(key_dim), key heads not yet repeated. conv_in holds the history and the rows.
void Convolve(PassContext& pass, const GdnWeights& w, const float* conv_in, float* out,
              uint32_t rows) {
  const GdnGeometry& n = pass.geometry().gdn;
  const uint32_t channels = n.conv_channels();
  const auto share = [&](uint32_t begin, uint32_t end) {
    pass.kernels.conv.fn({.x = conv_in,
                          .x_stride = channels,
                          .w = w.conv.data(),
                          .out = out,
                          .out_stride = channels,
                          .rows = rows,
                          .channel_begin = begin,
                          .channel_end = end,
                          .taps = n.conv_taps,
                          .dilation = 1});
  };
  const auto finish = [&](uint32_t begin, uint32_t end) {
    float* const first = out + size_t{begin} * channels;
    pass.kernels.silu.fn({.x = first, .y = first, .count = uint64_t{end - begin} * channels});
    const L2NormArgs q{.x = first,
                       .x_stride = channels,
                       .rows = end - begin,
                       .heads = n.key_head_count,
                       .dim = n.key_head_dim,
                       .scale = 1.0f / std::sqrt(static_cast<float>(n.key_head_dim))};
    pass.kernels.l2_norm.fn(q);
    L2NormArgs k = q;
    k.x = first + n.key_dim();
    k.scale = 1.0f;
    pass.kernels.l2_norm.fn(k);
  };
  if (uint64_t{rows} * channels < kParallelChannelsMin) {
    share(0, channels);
    finish(0, rows);
  } else {
    pass.team.ForRanges(channels, kBandRows,
                        [&](uint32_t, uint32_t begin, uint32_t end) { share(begin, end); });
    pass.team.ForRanges(rows, 1,
                        [&](uint32_t, uint32_t begin, uint32_t end) { finish(begin, end); });
  }
}

// b becomes sigmoid(b); a becomes g = -exp(A_log) * softplus(a + dt_bias); decay becomes exp(g).
void Gates(PassContext& pass, const GdnWeights& w) {
  const uint32_t heads = pass.geometry().gdn.value_head_count;
  PassBuffers& p = pass.buffers;
  for (uint32_t row = 0; row < pass.rows; ++row) {
    for (uint32_t h = 0; h < heads; ++h) {
      const size_t i = size_t{row} * heads + h;
      const float x = p.a[i] + w.dt_bias[h];
      const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
      p.a[i] = -std::exp(w.a_log[h]) * softplus;
      p.decay[i] = std::exp(p.a[i]);
    }
  }
  pass.kernels.sigmoid.fn({.x = p.b.data(), .y = p.b.data(), .count = uint64_t{pass.rows} * heads});
}

struct HeadRows {  // where one value head finds its rows
  const float* q;
  const float* k;
  const float* v;
};

HeadRows RowsOfHead(const GdnGeometry& n, const float* qkv, uint32_t head) {
  const uint32_t key_head = head / (n.value_head_count / n.key_head_count);
  return {.q = qkv + size_t{key_head} * n.key_head_dim,
          .k = qkv + n.key_dim() + size_t{key_head} * n.key_head_dim,
          .v = qkv + 2 * n.key_dim() + size_t{head} * n.value_head_dim};
}

size_t HeadStateFloats(const GdnGeometry& n) { return size_t{n.key_head_dim} * n.value_head_dim; }

// Rows one by one; the state goes from `committed` to `target`, which may be the same buffer.
GdnRecurrentArgs RecurrentArgs(const GdnGeometry& n, const float* qkv, const float* decay,
                               const float* beta, uint32_t head, const float* state_in,
                               float* state_out, uint32_t rows) {
  const HeadRows r = RowsOfHead(n, qkv, head);
  return {.q = r.q,
          .k = r.k,
          .v = r.v,
          .qkv_stride = n.conv_channels(),
          .decay = decay + head,
          .beta = beta + head,
          .gate_stride = n.value_head_count,
          .state_in = state_in + head * HeadStateFloats(n),
          .state_out = state_out + head * HeadStateFloats(n),
          .out = nullptr,
          .out_stride = 0,
          .rows = rows,
          .key_dim = n.key_head_dim,
          .value_dim = n.value_head_dim};
}

// The delta rule of one segment into mixed (rows, value_dim).
void DeltaRule(PassContext& pass, GdnState& state, const PassSegment& segment) {
  const GdnGeometry& n = pass.geometry().gdn;
  PassBuffers& p = pass.buffers;
  const float* qkv = p.qkv.data() + size_t{segment.row_begin} * n.conv_channels();
  const size_t gate_offset = size_t{segment.row_begin} * n.value_head_count;
  float* out = p.mixed.data() + size_t{segment.row_begin} * n.value_dim();
  const size_t scratch =
      GdnChunkedScratchFloats(GdnChunkedArgs{}.chunk_rows, n.key_head_dim, n.value_head_dim);
  pass.team.ForEach(n.value_head_count, [&](uint32_t worker, uint32_t head) {
    float* const head_out = out + size_t{head} * n.value_head_dim;
    if (pass.phase == Phase::kWindow) {
      GdnRecurrentArgs args =
          RecurrentArgs(n, qkv, p.decay.data() + gate_offset, p.b.data() + gate_offset, head,
                        state.committed.data(), state.working.data(), segment.rows);
      args.out = head_out;
      args.out_stride = n.value_dim();
      pass.kernels.gdn_recurrent.fn(args);
      return;
    }
    const HeadRows r = RowsOfHead(n, qkv, head);
    pass.kernels.gdn_chunked.fn({.q = r.q,
                                 .k = r.k,
                                 .v = r.v,
                                 .qkv_stride = n.conv_channels(),
                                 .log_decay = p.a.data() + gate_offset + head,
                                 .beta = p.b.data() + gate_offset + head,
                                 .gate_stride = n.value_head_count,
                                 .state = state.committed.data() + head * HeadStateFloats(n),
                                 .out = head_out,
                                 .out_stride = n.value_dim(),
                                 .rows = segment.rows,
                                 .key_dim = n.key_head_dim,
                                 .value_dim = n.value_head_dim,
                                 .scratch = p.chunk_scratch.data() + worker * scratch});
  });
}

// Puts the history in front of the segment's rows, convolves, and keeps what a commit will need.
void ConvolveSegment(PassContext& pass, const GdnWeights& w, GdnState& state,
                     const PassSegment& segment, const float* projected) {
  const GdnGeometry& n = pass.geometry().gdn;
  PassBuffers& p = pass.buffers;
  const size_t channels = n.conv_channels();
  const size_t history = size_t{n.conv_taps - 1} * channels;
  const size_t row_floats = size_t{segment.rows} * channels;
  const float* rows = projected + segment.row_begin * channels;
  float* out = p.qkv.data() + segment.row_begin * channels;
  std::span<float> in = pass.phase == Phase::kWindow ? state.window_conv : p.conv_in;
  std::copy(state.conv_history.begin(), state.conv_history.end(), in.begin());
  std::copy(rows, rows + row_floats, in.begin() + static_cast<ptrdiff_t>(history));
  Convolve(pass, w, in.data(), out, segment.rows);
  if (pass.phase == Phase::kWindow) {
    const size_t gates = size_t{segment.rows} * n.value_head_count;
    const size_t gate_offset = size_t{segment.row_begin} * n.value_head_count;
    std::copy(out, out + row_floats, state.window_qkv.begin());
    std::copy_n(p.decay.data() + gate_offset, gates, state.window_decay.begin());
    std::copy_n(p.b.data() + gate_offset, gates, state.window_beta.begin());
  } else {
    std::copy_n(in.begin() + static_cast<ptrdiff_t>(row_floats), history,
                state.conv_history.begin());
  }
}

}  // namespace

void RunGdn(PassContext& pass, uint32_t layer, const GdnWeights& w) {
  const ModelGeometry& g = pass.geometry();
  const GdnGeometry& n = g.gdn;
  PassBuffers& p = pass.buffers;
  const ActivationRows u{
      .x = p.u.data(), .x_stride = g.hidden, .rows = pass.rows, .cols = g.hidden};
  float* const projected = p.gdn_projected.data();
  pass.projector.Run(u, p.quantized,
                     {{&w.qkv, projected, n.conv_channels()},
                      {&w.z, p.z.data(), n.value_dim()},
                      {&w.b, p.b.data(), n.value_head_count},
                      {&w.a, p.a.data(), n.value_head_count}});
  Gates(pass, w);
  for (const PassSegment& segment : pass.segments) {
    GdnState& state = segment.sequence->gdn(layer);
    ConvolveSegment(pass, w, state, segment, projected);
    DeltaRule(pass, state, segment);
  }
  ForRowRanges(pass, [&](uint32_t begin, uint32_t end) {
    float* const o = p.mixed.data() + size_t{begin} * n.value_dim();
    pass.kernels.rms_norm.fn({.x = o,
                              .x_stride = n.value_dim(),
                              .y = o,
                              .y_stride = n.value_dim(),
                              .w = w.norm.data(),
                              .w_count = n.value_head_dim,
                              .weight = NormWeight::kPlain,
                              .rows = end - begin,
                              .cols = n.value_dim(),
                              .group = n.value_head_dim,
                              .epsilon = g.norm_epsilon});
    pass.kernels.gate.fn({.x = o,
                          .z = p.z.data() + size_t{begin} * n.value_dim(),
                          .y = o,
                          .count = uint64_t{end - begin} * n.value_dim(),
                          .silu = n.output_gate == OutputGate::kSilu});
  });
  pass.projector.Run(
      {.x = p.mixed.data(), .x_stride = n.value_dim(), .rows = pass.rows, .cols = n.value_dim()},
      p.quantized, {{&w.out, p.y.data(), g.hidden}});
}

void CommitGdn(PassContext& pass, CpuSequence& sequence, uint32_t row_count) {
  const ModelGeometry& g = pass.geometry();
  const GdnGeometry& n = g.gdn;
  for (uint32_t layer = 0; layer < g.layer_count(); ++layer) {
    if (g.layers[layer] != MixerKind::kGdn) continue;
    GdnState& state = sequence.gdn(layer);
    const size_t channels = n.conv_channels();
    std::copy_n(state.window_conv.begin() + static_cast<ptrdiff_t>(row_count * channels),
                size_t{n.conv_taps - 1} * channels, state.conv_history.begin());
    if (row_count == sequence.pass_rows()) {
      std::swap(state.committed, state.working);
      continue;
    }
    if (row_count == 0) continue;
    pass.team.ForEach(n.value_head_count, [&](uint32_t, uint32_t head) {
      pass.kernels.gdn_recurrent.fn(RecurrentArgs(
          n, state.window_qkv.data(), state.window_decay.data(), state.window_beta.data(), head,
          state.committed.data(), state.committed.data(), row_count));
    });
  }
}

}  // namespace hearth
