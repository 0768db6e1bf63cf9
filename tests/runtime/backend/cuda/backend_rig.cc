#include "tests/runtime/backend/cuda/backend_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

BackendRig::BackendRig(const std::string& pack_dir, PassLimits limits) : limits_(limits) {
  absl::StatusOr<Pack> pack = Pack::Open(pack_dir);
  EXPECT_TRUE(pack.ok()) << pack.status();
  HEARTH_CHECK(pack.ok());
  pack_ = std::make_unique<Pack>(*std::move(pack));
  absl::StatusOr<ModelWeights> weights = ModelWeights::Load(*pack_, Q8Handling::kKeep);
  EXPECT_TRUE(weights.ok()) << weights.status();
  HEARTH_CHECK(weights.ok());
  weights_ = *std::move(weights);
  AllOnHost();
}

absl::Status BackendRig::LoadExperts(const ExpertOptions& options, const PlacementCard* card) {
  experts_.reset();
  HEARTH_ASSIGN_OR_RETURN(
      experts_,
      ExpertPlacement::Load({.pack = *pack_,
                             .kernels = SelectCpuKernels(DetectCpuFeatures()),
                             .team = team_,
                             .clock = clock_,
                             .memory = {.available_bytes = UINT64_MAX, .source = "this test"},
                             .card = card},
                            options, limits_, nullptr));
  return absl::OkStatus();
}

absl::Status BackendRig::HoldOnCard(Backend& backend, const GpuInfo& gpu,
                                    const ExpertOptions& options) {
  const PlacementCard card{.gpu = gpu, .io = *backend.gpu_expert_io()};
  HEARTH_RETURN_IF_ERROR(LoadExperts(options, &card));
  backend.set_gpu_experts(experts_->gpu_recorder());
  return absl::OkStatus();
}

void BackendRig::AllOnHost() {
  const absl::Status loaded = LoadExperts({}, nullptr);
  EXPECT_TRUE(loaded.ok()) << loaded;
  HEARTH_CHECK(loaded.ok());
}

absl::StatusOr<std::unique_ptr<Backend>> BackendRig::MakeCpu() {
  return CreateCpuBackend({.weights = weights_,
                           .ngram = pack_->ngram.get(),
                           .kernels = SelectCpuKernels(DetectCpuFeatures()),
                           .team = team_},
                          {.arithmetic = Arithmetic::kFast, .limits = limits_});
}

absl::StatusOr<std::unique_ptr<Backend>> BackendRig::MakeCuda(GpuId gpu, KvFormat kv,
                                                              bool recorded) {
  return CreateCudaBackend(
      {.weights = weights_, .ngram = pack_->ngram.get(), .clock = clock_},
      {.gpu = gpu, .limits = limits_, .kv_format = kv, .recorded_windows = recorded}, nullptr);
}

absl::Status BackendRig::Predict(Backend& backend, LayerId layer, const Routes& routes) {
  for (size_t i = 0; i < prediction_.size(); ++i) {
    const size_t row = i / routes.ranks * routes.ranks;
    const auto chosen = routes.expert.subspan(row, routes.ranks);
    predicted_ += std::count(chosen.begin(), chosen.end(), prediction_[i]) != 0 ? 1 : 0;
    ++chosen_;
  }
  prediction_.clear();
  if (layer.value + 1 >= geometry().layer_count()) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const std::span<const uint32_t> next,
                          backend.PredictExperts(LayerId(layer.value + 1)));
  prediction_.assign(next.begin(), next.end());
  return absl::OkStatus();
}

absl::Status BackendRig::RunLayer(Backend& backend, LayerId layer, TrafficKind kind) {
  HEARTH_ASSIGN_OR_RETURN(const Routes routes, backend.FirstHalf(layer));
  const ExpertInput input = backend.expert_input();
  const std::span<float> output = backend.expert_output_buffer();
  HEARTH_RETURN_IF_ERROR(experts_->tiers().RunLayer(
      layer,
      {.expert = routes.expert,
       .rows = routes.rows,
       .ranks = routes.ranks,
       .expert_count = geometry().moe.expert_count},
      {.x = input.x, .quantized = input.quantized, .rows = input.rows, .arrival = input.arrival},
      kind, output, nullptr));
  if (predict_) HEARTH_RETURN_IF_ERROR(Predict(backend, layer, routes));
  return backend.SecondHalf(layer, output);
}

absl::Status BackendRig::RunTrunk(Backend& backend, std::span<const Segment> segments, Phase phase,
                                  const OnResidual& on_residual) {
  backend.set_stepwise(on_residual != nullptr);
  HEARTH_RETURN_IF_ERROR(backend.BeginTrunk(segments, phase));
  const TrafficKind kind = phase == Phase::kPrompt ? TrafficKind::kPrompt : TrafficKind::kWindow;
  for (uint32_t layer = 0; layer < geometry().layer_count(); ++layer) {
    HEARTH_RETURN_IF_ERROR(RunLayer(backend, LayerId(layer), kind));
    if (on_residual) on_residual(layer, backend.residual());
  }
  experts_->tiers().EndWindow(0);
  return absl::OkStatus();
}

absl::Status BackendRig::RunDraft(Backend& backend, Sequence& sequence,
                                  std::span<const TokenId> tokens, Backend::DraftSource source) {
  HEARTH_RETURN_IF_ERROR(backend.BeginDraft(sequence, tokens, source));
  return RunLayer(backend, LayerId(geometry().layer_count()), TrafficKind::kWindow);
}

std::vector<float> BackendRig::Logits(Backend& backend, Sequence& sequence,
                                      std::span<const TokenId> tokens, Phase phase, bool predict) {
  const Segment segment{.sequence = &sequence, .tokens = tokens};
  predict_ = predict;
  const absl::Status ran = RunTrunk(backend, {&segment, 1}, phase);
  predict_ = false;
  EXPECT_TRUE(ran.ok()) << ran;
  std::vector<float> logits(tokens.size() * geometry().vocab_count);
  if (!ran.ok()) return logits;
  const absl::Status head =
      backend.Head(0, static_cast<uint32_t>(tokens.size()), std::span(logits));
  EXPECT_TRUE(head.ok()) << head;
  return logits;
}

}  // namespace hearth
