#include "runtime/engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "runtime/backend/cpu/cpu_backend.h"
#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

CudaBackendOptions CudaOptionsOf(const ExpertFile& experts, const RunnerOptions& options) {
  return CudaOptionsOf(experts, options.arithmetic, options.limits, options.kv_format);
}

}  // namespace

absl::StatusOr<uint64_t> CardBytesOf(const Pack& pack, const RunnerOptions& options) {
  const uint32_t context = pack.manifest.geometry.context_tokens_max;
  const uint32_t planned = options.planned_context_tokens;
  HEARTH_ASSIGN_OR_RETURN(const CudaBackendBytes bytes,
                          PlanCudaBackend(pack.manifest.geometry, CudaWeightBytes(pack),
                                          CudaOptionsOf(pack.experts, options),
                                          planned == 0 ? context : std::min(planned, context)));
  return bytes.card_bytes() + bytes.sequence * (options.planned_sequences - 1);
}

absl::StatusOr<MemoryPlan> ModelRunner::Plan(const Pack& pack, const RunnerOptions& options,
                                             uint32_t worker_count) {
  const uint32_t context = pack.manifest.geometry.context_tokens_max;
  const uint32_t planned = options.planned_context_tokens;
  return PlanMemory({.pack = pack,
                     .experts = options.experts,
                     .arithmetic = options.arithmetic,
                     .limits = options.limits,
                     .ngram_in_memory = options.ngram_in_memory,
                     .worker_count = worker_count,
                     .context_tokens = planned == 0 ? context : std::min(planned, context),
                     .sequences = options.planned_sequences,
                     .prefix_bytes = options.prefix_bytes,
                     .gpu = options.gpu ? &*options.gpu : nullptr,
                     .kv_format = options.kv_format});
}

absl::StatusOr<uint64_t> ModelRunner::SequenceBytes(uint32_t context_tokens_max) const {
  if (!options_.gpu) {
    return PlanCpuBackend(geometry(), options_.limits, team_.worker_count(), context_tokens_max)
        .sequence;
  }
  HEARTH_ASSIGN_OR_RETURN(
      const CudaBackendBytes bytes,
      PlanCudaBackend(geometry(), CudaWeightBytes(pack_), CudaOptionsOf(pack_.experts, options_),
                      context_tokens_max));
  return bytes.sequence;
}

absl::Status ModelRunner::MakeBackend(const CpuKernels& kernels, const LoadProgress& progress) {
  const NgramFile* const ngram = pack_.ngram.get();
  if (!options_.gpu) {
    HEARTH_ASSIGN_OR_RETURN(
        backend_,
        CreateCpuBackend({.weights = weights_, .ngram = ngram, .kernels = kernels, .team = team_},
                         {.arithmetic = options_.arithmetic, .limits = options_.limits}));
    return absl::OkStatus();
  }
  CudaBackendOptions cuda = CudaOptionsOf(pack_.experts, options_);
  cuda.gpu = options_.gpu->id;
  HEARTH_ASSIGN_OR_RETURN(
      backend_,
      CreateCudaBackend({.weights = weights_, .ngram = ngram, .clock = clock_, .team = &team_},
                        cuda, [&](uint64_t done, uint64_t total) {
                          if (progress) progress("uploading weights", done, total);
                        }));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Load(Pack pack,
                                                               const RunnerOptions& options,
                                                               const CpuKernels& kernels,
                                                               WorkerTeam& team, Clock& clock,
                                                               const LoadProgress& progress) {
  std::unique_ptr<ModelRunner> r(new ModelRunner(std::move(pack), options, team, clock));
  HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan, Plan(r->pack_, options, team.worker_count()));
  HEARTH_RETURN_IF_ERROR(Annotate(CheckMemoryPlan(plan, options.memory), r->pack_.dir));
  const bool reference = options.arithmetic == Arithmetic::kReference;
  HEARTH_ASSIGN_OR_RETURN(
      r->weights_,
      ModelWeights::Load(r->pack_, reference ? Q8Handling::kDecodeToF32 : Q8Handling::kKeep));
  if (r->pack_.ngram && options.ngram_in_memory) {
    HEARTH_RETURN_IF_ERROR(r->pack_.ngram->LoadWhole());
  }
  HEARTH_RETURN_IF_ERROR(r->MakeBackend(kernels, progress));
  std::optional<PlacementCard> card;
  if (options.gpu) {
    const uint32_t context = r->geometry().context_tokens_max;
    const uint32_t planned = options.planned_context_tokens;
    HEARTH_ASSIGN_OR_RETURN(const uint64_t state_bytes,
                            r->SequenceBytes(planned == 0 ? context : std::min(planned, context)));
    card.emplace(PlacementCard{.gpu = *r->options_.gpu,
                               .io = *r->backend_->gpu_expert_io(),
                               .later_bytes = state_bytes * options.planned_sequences});
  }
  HEARTH_ASSIGN_OR_RETURN(r->experts_,
                          ExpertPlacement::Load({.pack = r->pack_,
                                                 .kernels = kernels,
                                                 .team = team,
                                                 .clock = clock,
                                                 .memory = options.memory,
                                                 .card = card ? &*card : nullptr},
                                                options.experts, options.limits, progress));
  r->backend_->set_gpu_experts(r->experts_->gpu_recorder());
  return r;
}

absl::Status ModelRunner::set_trace(WindowTrace* trace) {
  experts_->tiers().set_trace(trace);
  trace_ = trace;
  return backend_->set_trace(trace);
}

absl::StatusOr<Routes> ModelRunner::FirstHalf(LayerId layer) {
  const PassSpan span(trace_, clock_, "first half", layer);
  HEARTH_ASSIGN_OR_RETURN(Routes routes, backend_->FirstHalf(layer));
  if (route_source_ != nullptr && layer.value < geometry().layer_count()) {
    routes.expert = route_source_->RoutesOf(layer, routes.rows, routes.ranks);
  }
  return routes;
}

absl::Status ModelRunner::RunLayer(LayerId layer, TrafficKind kind) {
  HEARTH_ASSIGN_OR_RETURN(const Routes routes, FirstHalf(layer));
  if (observer_ != nullptr) observer_->OnRoutes(layer, routes);
  const ExpertInput input = backend_->expert_input();
  const std::span<float> output = backend_->expert_output_buffer();
  ExpertTiers& tiers = experts_->tiers();
  const LayerId after(layer.value + 1);
  const auto predict = [&]() -> std::span<const uint32_t> {
    const absl::StatusOr<std::span<const uint32_t>> experts = backend_->PredictExperts(after);
    return experts.ok() ? *experts : std::span<const uint32_t>();
  };
  const NextLayer next{.layer = after, .predict = predict};
  const bool look_ahead = experts_->reads_on_demand() && kind == TrafficKind::kWindow &&
                          after.value < geometry().layer_count();
  {
    const PassSpan span(trace_, clock_, "experts", layer);
    HEARTH_RETURN_IF_ERROR(tiers.RunLayer(
        layer,
        {.expert = routes.expert,
         .rows = routes.rows,
         .ranks = routes.ranks,
         .expert_count = geometry().moe.expert_count},
        {.x = input.x, .quantized = input.quantized, .rows = input.rows, .arrival = input.arrival},
        kind, output, look_ahead ? &next : nullptr));
  }
  if (!served_.empty()) AddRequestCounts(tiers.plan(), {}, request_rows_, served_);
  if (observer_ != nullptr) {
    const bool is_prompt = kind == TrafficKind::kPrompt;  // a window's rows came with its routes
    if (is_prompt && input.arrival != nullptr) HEARTH_RETURN_IF_ERROR(input.arrival->AwaitRows());
    observer_->OnExperts(layer, {.plan = tiers.plan(),
                                 .x = {input.x, size_t{input.rows} * geometry().hidden},
                                 .hidden = experts_->pool().hidden_rows()});
  }
  {
    const PassSpan span(trace_, clock_, "second half", layer);
    HEARTH_RETURN_IF_ERROR(backend_->SecondHalf(layer, output));
  }
  {
    const PassSpan span(trace_, clock_, "settle", layer);
    tiers.EndLayer();
  }
  if (observer_ != nullptr) observer_->OnResidual(layer, backend_->residual());
  return absl::OkStatus();
}

absl::Status ModelRunner::RunTrunk(std::span<const Segment> segments, Phase phase,
                                   std::span<RequestCounts> served) {
  HEARTH_CHECK(served.empty() || served.size() == segments.size());
  const PassSpan pass_span(trace_, clock_, "trunk");
  {
    const PassSpan span(trace_, clock_, "begin");
    HEARTH_RETURN_IF_ERROR(backend_->BeginTrunk(segments, phase));
  }
  if (uncommitted_count_ != 0) EndWindow();  // a pass that failed half way
  uncommitted_count_ = segments.size();
  served_ = served;
  request_rows_.clear();
  for (const Segment& segment : segments) {
    const uint32_t begin = request_rows_.empty() ? 0 : request_rows_.back().end;
    request_rows_.push_back(
        {.begin = begin, .end = begin + static_cast<uint32_t>(segment.tokens.size())});
  }
  const TrafficKind kind = phase == Phase::kPrompt ? TrafficKind::kPrompt : TrafficKind::kWindow;
  for (uint32_t layer = 0; layer < geometry().layer_count(); ++layer) {
    HEARTH_RETURN_IF_ERROR(RunLayer(LayerId(layer), kind));
  }
  served_ = {};
  bytes_.dense += weights_.bytes_per_pass();
  ++bytes_.passes;
  return absl::OkStatus();
}

absl::Status ModelRunner::RunDraft(Sequence& sequence, std::span<const TokenId> tokens,
                                   Backend::DraftSource source) {
  const PassSpan pass_span(trace_, clock_, "draft");
  HEARTH_RETURN_IF_ERROR(backend_->BeginDraft(sequence, tokens, source));
  served_ = {};
  bytes_.dense += weights_.draft_bytes_per_pass();
  const bool window = tokens.size() <= options_.limits.window_rows_max;
  return RunLayer(LayerId(geometry().layer_count()),
                  window ? TrafficKind::kWindow : TrafficKind::kPrompt);
}

void ModelRunner::EndWindow() {
  experts_->tiers().EndWindow(kept_rows_);
  uncommitted_count_ = 0;
  kept_rows_ = 0;
}

absl::Status ModelRunner::Commit(Sequence& sequence, uint32_t row_count) {
  const PassSpan span(trace_, clock_, "commit");
  HEARTH_RETURN_IF_ERROR(backend_->Commit(sequence, row_count));
  kept_rows_ += row_count;
  if (uncommitted_count_ != 0 && --uncommitted_count_ == 0) EndWindow();
  return absl::OkStatus();
}

absl::Status ModelRunner::Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) {
  const PassSpan span(trace_, clock_, "head");
  return backend_->Head(row_begin, row_count, logits);
}

absl::StatusOr<bool> ModelRunner::HeadTop(uint32_t row_begin, uint32_t row_count, uint32_t count,
                                          std::span<TopLogit> top) {
  const PassSpan span(trace_, clock_, "head");
  return backend_->HeadTop(row_begin, row_count, count, top);
}

PassBytes ModelRunner::bytes_read() const {
  PassBytes bytes = bytes_;
  bytes.experts = experts_->tiers().ledger().total().total().bytes;
  return bytes;
}

}  // namespace hearth
