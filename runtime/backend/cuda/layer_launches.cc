#include "runtime/backend/cuda/layer_launches.h"

#include <algorithm>
#include <cmath>

#include "gpu_kernels/ops/dense/rotate_quantize.h"
#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/gated_mix.h"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "gpu_kernels/ops/mixer/ngram.h"
#include "gpu_kernels/ops/mixer/rotary.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "runtime/backend/cuda/matmul_launch.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// A matrix and where its product goes, packed.
MatmulOutput To(const DeviceMatrix& w, float* y) { return {.w = w, .y = y, .y_stride = w.rows}; }

// Rows that a hyper-connection reads and what it makes of them.
struct HyperRead {
  const float* hn = nullptr;
  QuantizedOut hn_q;
  float* inject = nullptr;  // null: not wanted
  float* u = nullptr;
  QuantizedOut u_q;
  uint32_t rows = 0;
};

HyperRead WholeRead(const GpuPass& pass) {
  const GpuPassBuffers& b = pass.buffers;
  return {
      .hn = b.hn, .hn_q = b.hn_q, .inject = b.inject, .u = b.u, .u_q = b.u_q, .rows = pass.rows};
}

// In pieces that a window's product takes.
absl::Status EnqueueGatedMix(const GpuPass& pass, const DeviceMatrix& up, const HyperRead& read) {
  const ModelGeometry& g = pass.geometry;
  for (uint32_t first = 0; first < read.rows; first += kMatmulRowsMax) {
    HEARTH_RETURN_IF_ERROR(LaunchGatedMix({.up = up,
                                           .low = pass.buffers.low + uint64_t{first} * g.hc_rank,
                                           .hn = read.hn + uint64_t{first} * g.stream_dim(),
                                           .u = read.u + uint64_t{first} * g.hidden,
                                           .u_quantized = SliceQuantized(read.u_q, g.hidden, first),
                                           .rows = std::min(read.rows - first, kMatmulRowsMax),
                                           .streams = g.stream_count,
                                           .hidden = g.hidden},
                                          pass.stream));
  }
  return absl::OkStatus();
}

// u from the normalised streams: low = silu(down hn / streams), gate = up low, mix.
absl::Status EnqueueRead(const GpuPass& pass, const GpuHyperConnection& w, const HyperRead& read) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  const float per_stream = 1.0f / static_cast<float>(g.stream_count);
  MatmulOutput down = To(w.down, b.low);
  down.activation = Activation::kSilu;
  down.scale_in = per_stream;
  MatmulOutput inject;
  if (read.inject != nullptr) {
    inject = To(w.inject, read.inject);
    inject.activation = Activation::kSigmoid;
    inject.scale_in = per_stream;
    inject.scale_out = 2;
  }
  HEARTH_RETURN_IF_ERROR(EnqueueMatmul({.x = read.hn,
                                        .quantized = read.hn_q,
                                        .rows = read.rows,
                                        .cols = g.stream_dim(),
                                        .room = b.gemm_room},
                                       {down, inject}, pass.window, pass.stream));
  if (pass.window && TakesGatedMix(w.up, g.stream_count)) {
    return EnqueueGatedMix(pass, w.up, read);
  }
  const QuantizedOut low_q = QuantizedFor({&w.up}, b.low_q);
  if (low_q.q != nullptr) {
    HEARTH_RETURN_IF_ERROR(LaunchActivateQuantize({.function = RowFunction::kNone,
                                                   .x = b.low,
                                                   .x_stride = g.hc_rank,
                                                   .quantized = low_q,
                                                   .rows = read.rows,
                                                   .cols = g.hc_rank},
                                                  pass.stream));
  }
  HEARTH_RETURN_IF_ERROR(EnqueueMatmul(
      {.x = b.low, .quantized = low_q, .rows = read.rows, .cols = g.hc_rank, .room = b.gemm_room},
      {To(w.up, b.gate)}, pass.window, pass.stream));
  return LaunchStreamMix({.gate = b.gate,
                          .hn = read.hn,
                          .u = read.u,
                          .u_quantized = read.u_q,
                          .rows = read.rows,
                          .streams = g.stream_count,
                          .hidden = g.hidden},
                         pass.stream);
}

// The step that ends what wrote and normalises for the hyper-connection that reads next; null: no
// read follows.
GpuStreamStepArgs StepTo(const GpuPass& pass, const GpuHyperConnection* next) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  GpuStreamStepArgs step{.h = b.h,
                         .inject = b.inject,
                         .epsilon = g.norm_epsilon,
                         .rows = pass.rows,
                         .streams = g.stream_count,
                         .hidden = g.hidden};
  if (next != nullptr) {
    step.norm = next->norm;
    step.hn = b.hn;
    step.hn_quantized = QuantizedFor({&next->down, &next->inject}, b.hn_q);
  }
  return step;
}

// What reads the streams before the mixer of `layer` does: null when an n-gram embedding is added
// in between.
const GpuHyperConnection* ReadBefore(const GpuPass& pass, uint32_t layer) {
  const GpuLayerWeights& w = pass.weights.layer(layer);
  return w.ngram ? nullptr : &w.mixer_hc;
}

const GpuHyperConnection* ReadAfter(const GpuPass& pass, uint32_t layer) {
  if (pass.draft) return &pass.weights.mtp->mixer;
  if (layer + 1 == pass.geometry.layer_count()) return &pass.weights.final_mixer;
  return ReadBefore(pass, layer + 1);
}

absl::Status EnqueueNgram(const GpuPass& pass, const GpuLayerWeights& layer, const float* embed) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  const GpuNgramWeights& w = *layer.ngram;
  const uint32_t cols = g.ngram.embed_dim();
  const QuantizedOut q = QuantizedFor({&w.key, &w.value}, b.ngram_embed_q);
  if (q.q != nullptr) {
    HEARTH_RETURN_IF_ERROR(LaunchActivateQuantize({.function = RowFunction::kNone,
                                                   .x = embed,
                                                   .x_stride = cols,
                                                   .quantized = q,
                                                   .rows = pass.rows,
                                                   .cols = cols},
                                                  pass.stream));
  }
  HEARTH_RETURN_IF_ERROR(EnqueueMatmul(
      {.x = embed, .quantized = q, .rows = pass.rows, .cols = cols, .room = b.gemm_room},
      {To(w.key, b.ngram_key), To(w.value, b.ngram_value)}, pass.window, pass.stream));
  HEARTH_RETURN_IF_ERROR(LaunchNgram({.pass = pass.table,
                                      .key = b.ngram_key,
                                      .value = b.ngram_value,
                                      .norm_key = w.norm_key,
                                      .norm_query = w.norm_query,
                                      .norm_conv = w.norm_conv,
                                      .conv = w.conv,
                                      .h = b.h,
                                      .gated = b.ngram_gated,
                                      .conv_in = b.ngram_conv,
                                      .epsilon = g.norm_epsilon,
                                      .streams = g.stream_count,
                                      .hidden = g.hidden,
                                      .taps = g.ngram.conv_taps,
                                      .dilation = g.ngram.ngram_size,
                                      .window = pass.window},
                                     pass.stream));
  return LaunchStreamStep(StepTo(pass, &layer.mixer_hc), pass.stream);
}

GpuGdnShape ShapeOf(const GdnGeometry& n) {
  return {.key_heads = n.key_head_count,
          .value_heads = n.value_head_count,
          .key_dim = n.key_head_dim,
          .value_dim = n.value_head_dim,
          .taps = n.conv_taps};
}

absl::Status EnqueueDeltaRule(const GpuPass& pass, uint32_t layer, const GpuGdnWeights& w,
                              const QuantizedOut& mixed_q) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  const GpuGdnShape shape = ShapeOf(g.gdn);
  const GpuGdnInputs in{.projected = b.projected,
                        .b = b.b,
                        .a = b.a,
                        .conv = w.conv,
                        .a_log = w.a_log,
                        .dt_bias = w.dt_bias};
  const GpuGatedNormArgs output{.z = b.z,
                                .norm = w.norm,
                                .epsilon = g.norm_epsilon,
                                .gate = g.gdn.output_gate,
                                .mixed = b.mixed,
                                .mixed_quantized = mixed_q};
  if (pass.window) {
    return LaunchGdnWindow(
        {.pass = pass.table, .layer = layer, .shape = shape, .in = in, .output = output},
        pass.stream);
  }
  HEARTH_RETURN_IF_ERROR(LaunchGdnConvolve({.pass = pass.table,
                                            .layer = layer,
                                            .shape = shape,
                                            .in = in,
                                            .qkv = b.qkv,
                                            .log_decay = b.log_decay,
                                            .beta = b.beta},
                                           pass.stream));
  return LaunchGdnPrompt({.pass = pass.table,
                          .layer = layer,
                          .shape = shape,
                          .qkv = b.qkv,
                          .log_decay = b.log_decay,
                          .beta = b.beta,
                          .scratch = b.gdn_scratch,
                          .output = output},
                         pass.stream);
}

absl::Status EnqueueGdn(const GpuPass& pass, uint32_t layer, const GpuGdnWeights& w) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  HEARTH_RETURN_IF_ERROR(EnqueueMatmul(
      {.x = b.u, .quantized = b.u_q, .rows = pass.rows, .cols = g.hidden, .room = b.gemm_room},
      {To(w.qkv, b.projected), To(w.z, b.z), To(w.b, b.b), To(w.a, b.a)}, pass.window,
      pass.stream));
  const QuantizedOut mixed_q = QuantizedFor({&w.out}, b.mixed_q);
  HEARTH_RETURN_IF_ERROR(EnqueueDeltaRule(pass, layer, w, mixed_q));
  return EnqueueMatmul({.x = b.mixed,
                        .quantized = mixed_q,
                        .rows = pass.rows,
                        .cols = g.gdn.value_dim(),
                        .room = b.gemm_room},
                       {To(w.out, b.y)}, pass.window, pass.stream);
}

absl::Status EnqueueAttention(const GpuPass& pass, uint32_t layer, const GpuQsaWeights& w,
                              const QuantizedOut& mixed_q) {
  const GpuPassBuffers& b = pass.buffers;
  HEARTH_RETURN_IF_ERROR(LaunchQsaAppend(pass.qsa,
                                         {.pass = pass.table,
                                          .layer = layer,
                                          .qg = b.qg,
                                          .k = b.k,
                                          .v = b.v,
                                          .index = b.index,
                                          .q_norm = w.q_norm,
                                          .k_norm = w.k_norm,
                                          .index_q_norm = w.index_q_norm,
                                          .index_k_norm = w.index_k_norm,
                                          .cos = b.cos,
                                          .sin = b.sin,
                                          .block_cos = b.block_cos,
                                          .block_sin = b.block_sin},
                                         pass.stream));
  if (pass.choose_blocks) {
    HEARTH_RETURN_IF_ERROR(LaunchQsaSelect(
        pass.qsa, pass.qsa_plan,
        {.pass = pass.table, .layer = layer, .index = b.index, .workspace = b.qsa_workspace},
        pass.stream));
  }
  return LaunchQsaAttend(pass.qsa, pass.qsa_plan,
                         {.pass = pass.table,
                          .layer = layer,
                          .qg = b.qg,
                          .workspace = b.qsa_workspace,
                          .out = b.mixed,
                          .q = mixed_q.q,
                          .scale = mixed_q.scale,
                          .sum16 = mixed_q.sum16},
                         pass.stream);
}

absl::Status EnqueueQsa(const GpuPass& pass, uint32_t layer, const GpuQsaWeights& w) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  HEARTH_RETURN_IF_ERROR(EnqueueMatmul(
      {.x = b.u, .quantized = b.u_q, .rows = pass.rows, .cols = g.hidden, .room = b.gemm_room},
      {To(w.q, b.qg), To(w.k, b.k), To(w.v, b.v), To(w.index_qk, b.index)}, pass.window,
      pass.stream));
  HEARTH_RETURN_IF_ERROR(EnqueueAttention(pass, layer, w, b.mixed_q));
  const uint32_t width = g.attention.head_count * g.attention.head_dim;
  return EnqueueMatmul(
      {.x = b.mixed, .quantized = b.mixed_q, .rows = pass.rows, .cols = width, .room = b.gemm_room},
      {To(w.o, b.y)}, pass.window, pass.stream);
}

absl::Status EnqueueRouterScores(const GpuPass& pass, const GpuMoeWeights& w) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  MatmulOutput scale = To(w.shared_expert_gate, b.shared_scale);
  scale.activation = Activation::kSigmoid;
  return EnqueueMatmul(
      {.x = b.u, .quantized = b.u_q, .rows = pass.rows, .cols = g.hidden, .room = b.gemm_room},
      {To(w.router, b.router_logits), To(w.shared_gate, b.shared_gate),
       To(w.shared_up, b.shared_up), scale},
      pass.window, pass.stream);
}

}  // namespace

GpuRouterArgs RouterChoice(const GpuPass& pass) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  return {.logits = b.router_logits,
          .expert = b.route_expert,
          .weight = b.route_weight,
          .nan_flag = pass.nan_flag,
          .rows = pass.rows,
          .expert_count = g.moe.expert_count,
          .ranks = g.moe.experts_per_token,
          .renormalise = g.moe.renormalise};
}

GpuActivateQuantizeArgs SharedActivation(const GpuPass& pass) {
  const GpuPassBuffers& b = pass.buffers;
  const uint32_t width = pass.geometry.moe.shared_width;
  return {.function = RowFunction::kSwiglu,
          .x = b.shared_gate,
          .up = b.shared_up,
          .x_stride = width,
          .y = b.shared_gate,
          .quantized = b.shared_q,
          .rows = pass.rows,
          .cols = width};
}

absl::Status EnqueueRotaryTables(const GpuPass& pass) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  return LaunchRotaryTable({.pass = pass.table,
                            .cos = b.cos,
                            .sin = b.sin,
                            .block_cos = b.block_cos,
                            .block_sin = b.block_sin,
                            .theta = pass.draft ? g.mtp_rope_theta : g.attention.rope_theta,
                            .rotary_dim = g.attention.rotary_dim,
                            .block_tokens = g.attention.block_tokens},
                           pass.stream);
}

absl::Status EnqueueEmbedding(const GpuPass& pass, const float* embed) {
  GpuStreamStepArgs step = StepTo(pass, ReadBefore(pass, 0));
  step.write = StreamWrite::kBroadcast;
  step.y = embed;
  return LaunchStreamStep(step, pass.stream);
}

// x_s = fc_hidden * norm(h)_s + fc_embedding * norm(embed(token)), for each stream s.
absl::Status EnqueueDraftInput(const GpuPass& pass, const float* embed) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  const GpuMtpWeights& w = *pass.weights.mtp;
  const auto norm = [&](const float* x, const float* weight, uint32_t cols, float* y) {
    return LaunchStreamStep({.write = StreamWrite::kNone,
                             .h = const_cast<float*>(x),
                             .norm = weight,
                             .epsilon = g.norm_epsilon,
                             .hn = y,
                             .rows = pass.rows,
                             .streams = 1,
                             .hidden = cols},
                            pass.stream);
  };
  HEARTH_RETURN_IF_ERROR(norm(embed, w.norm_embedding, g.hidden, b.draft_embed));
  HEARTH_RETURN_IF_ERROR(norm(b.draft_hidden, w.norm_hidden, g.stream_dim(), b.draft_hidden));
  const auto product = [&](const float* x, const QuantizedOut& room, uint32_t rows,
                           const DeviceMatrix& m, float* y) -> absl::Status {
    const QuantizedOut q = QuantizedFor({&m}, room);
    if (q.q != nullptr) {
      HEARTH_RETURN_IF_ERROR(LaunchActivateQuantize({.function = RowFunction::kNone,
                                                     .x = x,
                                                     .x_stride = g.hidden,
                                                     .quantized = q,
                                                     .rows = rows,
                                                     .cols = g.hidden},
                                                    pass.stream));
    }
    return EnqueueMatmul({.x = x, .quantized = q, .rows = rows, .cols = g.hidden}, {To(m, y)},
                         pass.window, pass.stream);
  };
  HEARTH_RETURN_IF_ERROR(product(b.draft_embed, b.draft_embed_q, pass.rows, w.fc_embedding, b.y));
  // Each (row, stream) is one activation row of `hidden` values.
  HEARTH_RETURN_IF_ERROR(
      product(b.draft_hidden, b.draft_hidden_q, pass.rows * g.stream_count, w.fc_hidden, b.h));
  GpuStreamStepArgs step = StepTo(pass, &w.layer.mixer_hc);
  step.write = StreamWrite::kAdd;
  step.inject = nullptr;
  step.y = b.y;
  return LaunchStreamStep(step, pass.stream);
}

absl::Status EnqueueFirstHalf(const GpuPass& pass, uint32_t layer, const float* ngram_embed) {
  const GpuPassBuffers& b = pass.buffers;
  const GpuLayerWeights& w = pass.weights.layer(layer);
  if (w.ngram) HEARTH_RETURN_IF_ERROR(EnqueueNgram(pass, w, ngram_embed));
  HEARTH_RETURN_IF_ERROR(EnqueueRead(pass, w.mixer_hc, WholeRead(pass)));
  HEARTH_RETURN_IF_ERROR(w.mixer == MixerKind::kGdn ? EnqueueGdn(pass, layer, w.gdn)
                                                    : EnqueueQsa(pass, layer, w.qsa));
  GpuStreamStepArgs step = StepTo(pass, &w.moe_hc);
  step.write = StreamWrite::kAdd;
  step.y = b.y;
  HEARTH_RETURN_IF_ERROR(LaunchStreamStep(step, pass.stream));
  HEARTH_RETURN_IF_ERROR(EnqueueRead(pass, w.moe_hc, WholeRead(pass)));
  return EnqueueRouterScores(pass, w.moe);
}

absl::Status EnqueueBeforeExperts(const GpuPass& pass, uint32_t layer) {
  HEARTH_RETURN_IF_ERROR(LaunchActivateQuantize(SharedActivation(pass), pass.stream));
  return EnqueueAfterActivation(pass, layer);
}

absl::Status EnqueueAfterActivation(const GpuPass& pass, uint32_t layer) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  if (b.u_rotated_q != nullptr) {
    HEARTH_RETURN_IF_ERROR(LaunchRotateQuantizeRows({.x = b.u,
                                                     .x_stride = g.hidden,
                                                     .rows = pass.rows,
                                                     .cols = g.hidden,
                                                     .q = b.u_rotated_q,
                                                     .scale = b.u_rotated_scale,
                                                     .sum = b.u_rotated_sum},
                                                    pass.stream));
  }
  const GpuMoeWeights& w = pass.weights.layer(layer).moe;
  const uint32_t width = g.moe.shared_width;
  return EnqueueMatmul(
      {.x = b.shared_gate, .quantized = b.shared_q, .rows = pass.rows, .cols = width},
      {To(w.shared_down, b.shared_y)}, pass.window, pass.stream);
}

absl::Status EnqueueSecondHalf(const GpuPass& pass, uint32_t layer, const HostOutputs& outputs) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  GpuStreamStepArgs step = StepTo(pass, ReadAfter(pass, layer));
  step.write = StreamWrite::kCombine;
  step.combine = {.device_y = b.expert_y,
                  .host_y = outputs.y,
                  .on_card = outputs.on_card,
                  .y_stride = g.hidden,
                  .weight = b.route_weight,
                  .shared = b.shared_y,
                  .shared_gate = b.shared_scale,
                  .ranks = g.moe.experts_per_token,
                  .wait = outputs.wait};
  return LaunchStreamStep(step, pass.stream);
}

absl::Status EnqueueRouterAhead(const GpuPass& pass, uint32_t layer) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  const GpuLayerWeights& w = pass.weights.layer(layer);
  HEARTH_RETURN_IF_ERROR(LaunchStreamStep(StepTo(pass, &w.moe_hc), pass.stream));
  HyperRead read = WholeRead(pass);
  read.inject = nullptr;
  HEARTH_RETURN_IF_ERROR(EnqueueRead(pass, w.moe_hc, read));
  HEARTH_RETURN_IF_ERROR(EnqueueMatmul(
      {.x = b.u, .quantized = b.u_q, .rows = pass.rows, .cols = g.hidden, .room = b.gemm_room},
      {To(w.moe.router, b.router_logits)}, pass.window, pass.stream));
  return LaunchRouter({.logits = b.router_logits,
                       .expert = b.route_expert,
                       .nan_flag = pass.nan_flag,
                       .rows = pass.rows,
                       .expert_count = g.moe.expert_count,
                       .ranks = g.moe.experts_per_token,
                       .renormalise = g.moe.renormalise},
                      pass.stream);
}

absl::Status EnqueueHead(const GpuPass& pass, uint32_t row_begin, uint32_t row_count) {
  const ModelGeometry& g = pass.geometry;
  const GpuPassBuffers& b = pass.buffers;
  const GpuHyperConnection& mixer = pass.draft ? pass.weights.mtp->mixer : pass.weights.final_mixer;
  // The last half layer has left the streams normalised for this read.
  HEARTH_RETURN_IF_ERROR(EnqueueRead(pass, mixer,
                                     {.hn = b.hn + uint64_t{row_begin} * g.stream_dim(),
                                      .hn_q = SliceQuantized(b.hn_q, g.stream_dim(), row_begin),
                                      .u = b.u,
                                      .u_q = b.u_q,
                                      .rows = row_count}));
  return EnqueueMatmul({.x = b.u, .quantized = b.u_q, .rows = row_count, .cols = g.hidden},
                       {To(pass.weights.lm_head, b.logits)}, pass.window, pass.stream);
}

}  // namespace hearth
