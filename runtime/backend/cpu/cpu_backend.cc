#include "runtime/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/backend/cpu/cpu_imager.h"
#include "runtime/backend/cpu/pass.h"
#include "runtime/backend/cpu/pass_buffers.h"
#include "runtime/backend/pass_input.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuBackendDeps& deps, const CpuBackendOptions& options)
      : projector_(deps.kernels, deps.team),
        pass_{.weights = deps.weights,
              .kernels = deps.kernels,
              .team = deps.team,
              .projector = projector_,
              .ngram_file = deps.ngram,
              .limits = options.limits,
              .arithmetic = options.arithmetic,
              .buffers = {},
              .segments = {}},
        imager_(deps.weights.geometry) {}

  absl::Status Allocate() {
    const PassBounds bounds = BoundsOf(geometry(), pass_.limits, pass_.team.worker_count());
    pass_.chosen_max = bounds.chosen_max;
    pass_.blocks_max = bounds.blocks_max;
    pass_.segments.reserve(bounds.rows);
    ReservePassBuffers(arena_, pass_.buffers, geometry(), bounds);
    return Annotate(arena_.Allocate(), "buffers of the CPU backend");
  }

  absl::StatusOr<std::unique_ptr<Sequence>> CreateSequence(uint32_t context_tokens_max) override;
  absl::Status BeginTrunk(std::span<const Segment> segments, Phase phase) override;
  absl::Status BeginDraft(Sequence& sequence, std::span<const TokenId> tokens,
                          DraftSource source) override;
  absl::StatusOr<Routes> FirstHalf(LayerId layer) override;
  ExpertInput expert_input() const override;
  absl::StatusOr<std::span<const uint32_t>> PredictExperts(LayerId layer) override;
  std::span<float> expert_output_buffer() override { return pass_.buffers.expert_output; }
  absl::Status SecondHalf(LayerId layer, std::span<const float> expert_output) override;
  absl::Status Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) override;
  absl::Status Commit(Sequence& sequence, uint32_t row_count) override;
  absl::Status CommitDraft(Sequence& sequence) override;

  std::span<const float> residual() const override {
    return pass_.buffers.h.first(size_t{pass_.rows} * geometry().stream_dim());
  }
  uint32_t pass_rows() const override { return pass_.rows; }
  SequenceImager& imager() override { return imager_; }

 private:
  const ModelGeometry& geometry() const { return pass_.geometry(); }
  absl::Status BeginSegments(std::span<const Segment> segments);
  void FillDraftInput(CpuSequence& sequence, std::span<const TokenId> tokens, DraftSource source);

  Projector projector_;
  PassContext pass_;
  CpuImager imager_;
  ScratchArena arena_;
  bool draft_from_trunk_ = false;
};

absl::StatusOr<std::unique_ptr<Sequence>> CpuBackend::CreateSequence(uint32_t context_tokens_max) {
  if (context_tokens_max == 0 || context_tokens_max > geometry().context_tokens_max) {
    return absl::InvalidArgumentError(absl::StrCat("context of ", context_tokens_max,
                                                   " tokens: this model takes 1 to ",
                                                   geometry().context_tokens_max));
  }
  return CpuSequence::Create(geometry(), pass_.limits, context_tokens_max);
}

absl::Status CpuBackend::BeginSegments(std::span<const Segment> segments) {
  pass_.segments.clear();
  uint32_t row = 0;
  for (const Segment& segment : segments) {
    auto* sequence = static_cast<CpuSequence*>(segment.sequence);
    HEARTH_RETURN_IF_ERROR(sequence->BeginPass(segment.tokens));
    sequence->set_window(pass_.phase == Phase::kWindow);
    const auto rows = static_cast<uint32_t>(segment.tokens.size());
    pass_.segments.push_back(
        {.sequence = sequence, .row_begin = row, .rows = rows, .base = sequence->token_count()});
    row += rows;
  }
  pass_.rows = row;
  return absl::OkStatus();
}

absl::Status CpuBackend::BeginTrunk(std::span<const Segment> segments, Phase phase) {
  HEARTH_RETURN_IF_ERROR(CheckTrunk(geometry(), pass_.limits, segments, phase));
  pass_.phase = phase;
  pass_.draft = false;
  pass_.rope_theta = geometry().attention.rope_theta;
  HEARTH_RETURN_IF_ERROR(BeginSegments(segments));
  const uint32_t hidden = geometry().hidden;
  float* h = pass_.buffers.h.data();
  for (const Segment& segment : segments) {
    for (const TokenId token : segment.tokens) {
      (void)EmbedTokens(pass_.weights.embed_tokens, {&token, 1}, h);
      for (uint32_t s = 1; s < geometry().stream_count; ++s) {
        std::copy_n(h, hidden, h + size_t{s} * hidden);
      }
      h += geometry().stream_dim();
    }
  }
  FillRotaryTables(pass_);
  return absl::OkStatus();
}

// x_s = fc_hidden * norm(h)_s + fc_embedding * norm(embed(token)), for each stream s.
void CpuBackend::FillDraftInput(CpuSequence& sequence, std::span<const TokenId> tokens,
                                DraftSource source) {
  const ModelGeometry& g = geometry();
  const MtpWeights& w = *pass_.weights.mtp;
  PassBuffers& b = pass_.buffers;
  const uint32_t d = g.stream_dim();
  const uint32_t base = pass_.segments[0].base;
  (void)EmbedTokens(pass_.weights.embed_tokens, tokens, b.draft_embed.data());
  for (uint32_t i = 0; i < pass_.rows; ++i) {
    const std::span<const float> hidden =
        source == DraftSource::kTrunk ? sequence.HiddenAt(base + i) : sequence.chain_hidden();
    std::copy(hidden.begin(), hidden.end(), b.draft_hidden.begin() + size_t{i} * d);
  }
  const auto norm = [&](float* x, std::span<const float> weight, uint32_t cols) {
    pass_.kernels.rms_norm.fn({.x = x,
                               .x_stride = cols,
                               .y = x,
                               .y_stride = cols,
                               .w = weight.data(),
                               .w_count = cols,
                               .weight = NormWeight::kOnePlus,
                               .rows = pass_.rows,
                               .cols = cols,
                               .group = cols,
                               .epsilon = g.norm_epsilon});
  };
  norm(b.draft_embed.data(), w.norm_embedding, g.hidden);
  norm(b.draft_hidden.data(), w.norm_hidden, d);
  projector_.Run(
      {.x = b.draft_embed.data(), .x_stride = g.hidden, .rows = pass_.rows, .cols = g.hidden},
      b.quantized, {{&w.fc_embedding, b.y.data(), g.hidden}});
  // Each (row, stream) is one activation row of `hidden` values.
  projector_.Run({.x = b.draft_hidden.data(),
                  .x_stride = g.hidden,
                  .rows = pass_.rows * g.stream_count,
                  .cols = g.hidden},
                 b.quantized, {{&w.fc_hidden, b.h.data(), g.hidden}});
  for (uint32_t i = 0; i < pass_.rows; ++i) {
    const float* e = b.y.data() + size_t{i} * g.hidden;
    float* x = b.h.data() + size_t{i} * d;
    for (uint32_t s = 0; s < g.stream_count; ++s) {
      for (uint32_t j = 0; j < g.hidden; ++j) x[size_t{s} * g.hidden + j] += e[j];
    }
  }
}

absl::Status CpuBackend::BeginDraft(Sequence& sequence, std::span<const TokenId> tokens,
                                    DraftSource source) {
  auto& s = static_cast<CpuSequence&>(sequence);
  const bool chained = source == DraftSource::kChained;
  const uint32_t base = chained ? s.draft_position() : s.draft_count();
  const auto rows = static_cast<uint32_t>(tokens.size());
  HEARTH_RETURN_IF_ERROR(CheckDraft(
      geometry(),
      {.tokens = tokens,
       .source = source,
       .base = base,
       .context_tokens_max = s.context_tokens_max(),
       .rows_max = std::max(pass_.limits.prompt_rows_max, pass_.limits.window_rows_max),
       .has_head = pass_.weights.mtp.has_value(),
       .has_hidden = !s.HiddenAt(base).empty() && !s.HiddenAt(base + rows - 1).empty()}));
  // All rows of a draft pass are kept or overwritten by position: it is a prompt pass of one
  // segment.
  pass_.phase = Phase::kPrompt;
  pass_.draft = true;
  pass_.rope_theta = geometry().mtp_rope_theta;
  pass_.segments.clear();
  pass_.segments.push_back({.sequence = &s, .row_begin = 0, .rows = rows, .base = base});
  pass_.rows = rows;
  draft_from_trunk_ = !chained;
  s.BeginDraftPass(base, rows);
  FillDraftInput(s, tokens, source);
  FillRotaryTables(pass_);
  return absl::OkStatus();
}

absl::StatusOr<Routes> CpuBackend::FirstHalf(LayerId layer) {
  const LayerWeights& w = pass_.weights.layer(layer.value);
  if (w.ngram) HEARTH_RETURN_IF_ERROR(AddNgram(pass_, *w.ngram));
  ReadHyperConnection(pass_, w.mixer_hc);
  if (w.mixer == MixerKind::kGdn) {
    RunGdn(pass_, layer.value, w.gdn);
  } else {
    RunQsa(pass_, layer.value, w.qsa);
  }
  WriteHyperConnection(pass_);
  ReadHyperConnection(pass_, w.moe_hc);
  HEARTH_RETURN_IF_ERROR(Annotate(RunRouter(pass_, w.moe), absl::StrCat("layer ", layer.value)));
  if (pass_.arithmetic == Arithmetic::kFast) {
    projector_.Quantize({.x = pass_.buffers.u.data(),
                         .x_stride = geometry().hidden,
                         .rows = pass_.rows,
                         .cols = geometry().hidden},
                        pass_.buffers.u_quantized);
  }
  const uint32_t ranks = geometry().moe.experts_per_token;
  const size_t entries = size_t{pass_.rows} * ranks;
  return Routes{.expert = pass_.buffers.route_expert.first(entries),
                .weight = pass_.buffers.route_weight.first(entries),
                .rows = pass_.rows,
                .ranks = ranks};
}

ExpertInput CpuBackend::expert_input() const {
  ExpertInput in{.x = pass_.buffers.u.data(), .quantized = {}, .rows = pass_.rows};
  if (pass_.arithmetic == Arithmetic::kFast) {
    in.quantized = {.q = pass_.buffers.u_quantized.q.data(),
                    .scale = pass_.buffers.u_quantized.scale.data(),
                    .sum16 = pass_.buffers.u_quantized.sum16.data(),
                    .rows = pass_.rows,
                    .cols = geometry().hidden};
  }
  return in;
}

absl::StatusOr<std::span<const uint32_t>> CpuBackend::PredictExperts(LayerId layer) {
  HEARTH_RETURN_IF_ERROR(CheckPrediction(geometry(), pass_.phase == Phase::kWindow, layer));
  const LayerWeights& w = pass_.weights.layer(layer.value);
  return RunRouterAhead(pass_, w.moe_hc, w.moe);
}

absl::Status CpuBackend::SecondHalf(LayerId layer, std::span<const float> expert_output) {
  CombineExperts(pass_, pass_.weights.layer(layer.value).moe, expert_output);
  WriteHyperConnection(pass_);
  if (layer.value + 1 == geometry().layer_count()) {
    for (const PassSegment& s : pass_.segments) {
      s.sequence->StoreHidden(residual().subspan(size_t{s.row_begin} * geometry().stream_dim(),
                                                 size_t{s.rows} * geometry().stream_dim()));
    }
  } else if (pass_.draft) {
    const std::span<const float> last = residual().last(geometry().stream_dim());
    std::copy(last.begin(), last.end(), pass_.segments[0].sequence->chain_hidden().begin());
  }
  return absl::OkStatus();
}

absl::Status CpuBackend::Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) {
  const ModelGeometry& g = geometry();
  HEARTH_CHECK(row_begin + row_count <= pass_.rows);
  HEARTH_CHECK(logits.size() >= size_t{row_count} * g.vocab_count);
  // The mixer works on the first rows of the buffers: the residual itself is left as it is.
  const uint32_t rows = std::exchange(pass_.rows, row_count);
  PassBuffers& b = pass_.buffers;
  const std::span<float> h = b.h;
  b.h = h.subspan(size_t{row_begin} * g.stream_dim());
  ReadHyperConnection(pass_, pass_.draft ? pass_.weights.mtp->mixer : pass_.weights.final_mixer);
  b.h = h;
  pass_.rows = rows;
  projector_.Run({.x = b.u.data(), .x_stride = g.hidden, .rows = row_count, .cols = g.hidden},
                 b.quantized, {{&pass_.weights.lm_head, logits.data(), g.vocab_count}});
  return absl::OkStatus();
}

absl::Status CpuBackend::Commit(Sequence& sequence, uint32_t row_count) {
  auto& s = static_cast<CpuSequence&>(sequence);
  const bool window = s.pass_is_window() && s.pass_finished();
  HEARTH_RETURN_IF_ERROR(s.CommitPass(geometry(), row_count));
  if (window) CommitGdn(pass_, s, row_count);
  return absl::OkStatus();
}

absl::Status CpuBackend::CommitDraft(Sequence& sequence) {
  HEARTH_RETURN_IF_ERROR(CheckDraftKept(draft_from_trunk_));
  static_cast<CpuSequence&>(sequence).CommitDraftPass();
  return absl::OkStatus();
}

}  // namespace

CpuBackendBytes PlanCpuBackend(const ModelGeometry& geometry, const PassLimits& limits,
                               uint32_t worker_count, uint32_t context_tokens_max) {
  ScratchArena arena;
  PassBuffers buffers;
  ReservePassBuffers(arena, buffers, geometry, BoundsOf(geometry, limits, worker_count));
  return {.buffers = arena.reserved_bytes(),
          .sequence = CpuSequence::StateBytes(geometry, limits, context_tokens_max)};
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendDeps& deps,
                                                          const CpuBackendOptions& options) {
  HEARTH_RETURN_IF_ERROR(CheckNgramTable(deps.weights.geometry, deps.ngram != nullptr));
  auto backend = std::make_unique<CpuBackend>(deps, options);
  HEARTH_RETURN_IF_ERROR(backend->Allocate());
  return backend;
}

}  // namespace hearth
