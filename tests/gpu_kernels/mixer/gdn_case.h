// Gated DeltaNet for tests and benchmarks: random weights and rows, the plain recurrence on the
// host, and sequences with their state on a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpu_kernels/ops/mixer/gdn.h"
#include "runtime/base/status.h"
#include "tests/gpu_kernels/mixer/pass_fixture.h"

namespace hearth {

inline constexpr uint32_t kCaseLayer = 1;  // layer 0 has no delta-rule state
inline constexpr uint32_t kCaseLayers = 3;
inline constexpr uint32_t kCaseWindowRows = 9;
inline constexpr uint32_t kCaseRingRows = 32;
inline constexpr float kCaseEpsilon = 1e-6f;

struct GdnCase {
  GpuGdnShape shape;
  OutputGate gate;
  std::vector<float> conv, a_log, dt_bias, norm;

  GdnCase(const GpuGdnShape& s, OutputGate g, uint64_t seed) : shape(s), gate(g) {
    Prng prng(seed);
    conv = RandomFloats(&prng, size_t{s.taps} * s.channels(), 0.5f);
    a_log = RandomFloats(&prng, s.value_heads, 1.5f);
    dt_bias = RandomFloats(&prng, s.value_heads, 1);
    norm = RandomFloats(&prng, s.value_dim, 2);
  }
};

// What the projections give for some rows.
struct GdnRows {
  uint32_t rows = 0;
  std::vector<float> projected, a, b, z;

  static GdnRows Random(const GpuGdnShape& s, uint32_t rows, Prng* prng) {
    return {.rows = rows,
            .projected = RandomFloats(prng, size_t{rows} * s.channels(), 2),
            .a = RandomFloats(prng, size_t{rows} * s.value_heads, 3),
            .b = RandomFloats(prng, size_t{rows} * s.value_heads, 3),
            .z = RandomFloats(prng, size_t{rows} * s.mixed_dim(), 3)};
  }
  void Append(const GdnRows& more) {
    rows += more.rows;
    projected.insert(projected.end(), more.projected.begin(), more.projected.end());
    a.insert(a.end(), more.a.begin(), more.a.end());
    b.insert(b.end(), more.b.begin(), more.b.end());
    z.insert(z.end(), more.z.begin(), more.z.end());
  }
  GdnRows Slice(const GpuGdnShape& s, uint32_t first, uint32_t count) const {
    const auto part = [&](const std::vector<float>& from, size_t width) {
      return std::vector<float>(from.begin() + static_cast<ptrdiff_t>(first * width),
                                from.begin() + static_cast<ptrdiff_t>((first + count) * width));
    };
    return {count, part(projected, s.channels()), part(a, s.value_heads), part(b, s.value_heads),
            part(z, s.mixed_dim())};
  }
};

// One sequence on the host: the scalar kernels, row after row.
class PlainGdn {
 public:
  explicit PlainGdn(const GdnCase& c)
      : case_(&c),
        history_(size_t{c.shape.taps - 1} * c.shape.channels()),
        state_(size_t{c.shape.value_heads} * c.shape.key_dim * c.shape.value_dim) {}
  const std::vector<float>& state() const { return state_; }

  // The mixed rows.
  std::vector<float> Run(const GdnRows& rows) {
    std::vector<float> mixed;
    for (uint32_t t = 0; t < rows.rows; ++t) {
      const std::vector<float> row = RunRow(rows.Slice(case_->shape, t, 1));
      mixed.insert(mixed.end(), row.begin(), row.end());
    }
    return mixed;
  }

 private:
  std::vector<float> Convolved(const GdnRows& row) {
    const GpuGdnShape& s = case_->shape;
    const uint32_t channels = s.channels();
    history_.insert(history_.end(), row.projected.begin(), row.projected.end());
    std::vector<float> qkv(channels);
    ScalarKernels().conv.fn({.x = history_.data(),
                             .x_stride = channels,
                             .w = case_->conv.data(),
                             .out = qkv.data(),
                             .out_stride = channels,
                             .rows = 1,
                             .channel_begin = 0,
                             .channel_end = channels,
                             .taps = s.taps});
    history_.erase(history_.begin(), history_.begin() + channels);
    ScalarKernels().silu.fn({.x = qkv.data(), .y = qkv.data(), .count = channels});
    L2NormArgs norm{.x = qkv.data(),
                    .x_stride = channels,
                    .rows = 1,
                    .heads = s.key_heads,
                    .dim = s.key_dim,
                    .scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim))};
    ScalarKernels().l2_norm.fn(norm);
    norm.x += size_t{s.key_heads} * s.key_dim;
    norm.scale = 1;
    ScalarKernels().l2_norm.fn(norm);
    return qkv;
  }

  std::vector<float> RunRow(const GdnRows& row) {
    const GpuGdnShape& s = case_->shape;
    const std::vector<float> qkv = Convolved(row);
    std::vector<float> out(s.mixed_dim());
    for (uint32_t head = 0; head < s.value_heads; ++head) {
      const float x = row.a[head] + case_->dt_bias[head];
      const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
      const float decay = std::exp(-std::exp(case_->a_log[head]) * softplus);
      const float beta = 1.0f / (1.0f + std::exp(-row.b[head]));
      const uint32_t key_head = head / (s.value_heads / s.key_heads);
      float* const state = &state_[size_t{head} * s.key_dim * s.value_dim];
      ScalarKernels().gdn_recurrent.fn(
          {.q = &qkv[size_t{key_head} * s.key_dim],
           .k = &qkv[size_t{s.key_heads + key_head} * s.key_dim],
           .v = &qkv[size_t{2} * s.key_heads * s.key_dim + size_t{head} * s.value_dim],
           .decay = &decay,
           .beta = &beta,
           .state_in = state,
           .state_out = state,
           .out = &out[size_t{head} * s.value_dim],
           .rows = 1,
           .key_dim = s.key_dim,
           .value_dim = s.value_dim});
    }
    ScalarKernels().rms_norm.fn({.x = out.data(),
                                 .x_stride = s.mixed_dim(),
                                 .y = out.data(),
                                 .y_stride = s.mixed_dim(),
                                 .w = case_->norm.data(),
                                 .w_count = s.value_dim,
                                 .weight = NormWeight::kPlain,
                                 .rows = 1,
                                 .cols = s.mixed_dim(),
                                 .group = s.value_dim,
                                 .epsilon = kCaseEpsilon});
    ScalarKernels().gate.fn({.x = out.data(),
                             .z = row.z.data(),
                             .y = out.data(),
                             .count = out.size(),
                             .silu = case_->gate == OutputGate::kSilu});
    return out;
  }

  const GdnCase* case_;
  std::vector<float> history_;  // (taps - 1, channels)
  std::vector<float> state_;
};

// One sequence's state on the device.
struct GpuGdnSequence {
  DeviceArray<float> state, ring, qkv, decay, beta;
  DeviceArray<GpuLayerState> layers;
  uint32_t base = 0;
  uint32_t pending_rows = 0;
  uint32_t parity = 0;

  GpuGdnSequence(const UniqueStream& s, const GpuGdnShape& shape)
      : state(s, std::vector<float>(size_t{shape.value_heads} * shape.key_dim * shape.value_dim)),
        ring(s, std::vector<float>(size_t{kCaseRingRows} * shape.channels())),
        qkv(s, size_t{2} * kCaseWindowRows * shape.channels()),
        decay(s, size_t{2} * kCaseWindowRows * shape.value_heads),
        beta(s, size_t{2} * kCaseWindowRows * shape.value_heads),
        layers(s, Layers()) {}
  std::vector<GpuLayerState> Layers() const {
    std::vector<GpuLayerState> all(kCaseLayers);
    all[kCaseLayer].delta_state = state.data();
    all[kCaseLayer].conv_ring = ring.data();
    all[kCaseLayer].pending_qkv = qkv.data();
    all[kCaseLayer].pending_decay = decay.data();
    all[kCaseLayer].pending_beta = beta.data();
    return all;
  }
  GpuSegment Segment(uint32_t rows) const {
    return {.layers = layers.data(),
            .rows = rows,
            .base = base,
            .pending_rows = pending_rows,
            .parity = parity};
  }
  // After a window of which `rows` rows are kept.
  void CommitWindow(uint32_t rows) {
    base += rows;
    pending_rows = rows;
    parity = 1 - parity;
  }
  void CommitPrompt(uint32_t rows) {
    base += rows;
    pending_rows = 0;
  }
};

// The arrays of one pass.
struct GpuGdnPass {
  const GdnCase& c;
  DevicePass pass;
  DeviceArray<float> projected, a, b, z, conv, a_log, dt_bias, norm, mixed, qkv, log_decay, beta;
  DeviceArray<float> scratch;
  DeviceQuantized quantized;

  GpuGdnPass(const UniqueStream& s, const GdnCase& gdn_case, std::vector<GpuSegment> segments,
             const GdnRows& rows)
      : c(gdn_case),
        pass(s, segments, kCaseWindowRows, kCaseRingRows),
        projected(s, rows.projected),
        a(s, rows.a),
        b(s, rows.b),
        z(s, rows.z),
        conv(s, c.conv),
        a_log(s, c.a_log),
        dt_bias(s, c.dt_bias),
        norm(s, c.norm),
        mixed(s, rows.z.size()),
        qkv(s, rows.projected.size()),
        log_decay(s, rows.a.size()),
        beta(s, rows.a.size()),
        scratch(s,
                GdnPromptScratchFloats(rows.rows, static_cast<uint32_t>(segments.size()), c.shape)),
        quantized(s, rows.rows, c.shape.mixed_dim()) {}

  GpuGdnInputs In() const {
    return {.projected = projected.data(),
            .b = b.data(),
            .a = a.data(),
            .conv = conv.data(),
            .a_log = a_log.data(),
            .dt_bias = dt_bias.data()};
  }
  GpuGdnConvolveArgs ConvolveArgs() const {
    return {.pass = pass.table(),
            .layer = kCaseLayer,
            .shape = c.shape,
            .in = In(),
            .qkv = qkv.data(),
            .log_decay = log_decay.data(),
            .beta = beta.data()};
  }
  GpuGatedNormArgs Output() const {
    return {.z = z.data(),
            .norm = norm.data(),
            .epsilon = kCaseEpsilon,
            .gate = c.gate,
            .mixed = mixed.data(),
            .mixed_quantized = quantized.out()};
  }
  GpuGdnWindowArgs WindowArgs() const {
    return {.pass = pass.table(),
            .layer = kCaseLayer,
            .shape = c.shape,
            .in = In(),
            .output = Output()};
  }
  GpuGdnPromptArgs PromptArgs() const {
    return {.pass = pass.table(),
            .layer = kCaseLayer,
            .shape = c.shape,
            .qkv = qkv.data(),
            .log_decay = log_decay.data(),
            .beta = beta.data(),
            .scratch = scratch.data(),
            .output = Output()};
  }
  absl::Status Launch(bool window, CudaStreamView stream) const {
    if (window) return LaunchGdnWindow(WindowArgs(), stream);
    HEARTH_RETURN_IF_ERROR(LaunchGdnConvolve(ConvolveArgs(), stream));
    return LaunchGdnPrompt(PromptArgs(), stream);
  }
};

}  // namespace hearth
