// A model whose backends a test drives itself: pack, weights, the CPU's experts, and passes through
// any backend of it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend/cpu/cpu_backend.h"
#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/base/worker_team.h"
#include "runtime/engine/expert_placement.h"

namespace hearth {

class BackendRig {
 public:
  explicit BackendRig(const std::string& pack_dir, PassLimits limits = {});

  const ModelGeometry& geometry() const { return weights_.geometry; }
  const ModelWeights& weights() const { return weights_; }
  const Pack& pack() const { return *pack_; }
  const PassLimits& limits() const { return limits_; }

  absl::StatusOr<std::unique_ptr<Backend>> MakeCpu();
  absl::StatusOr<std::unique_ptr<Backend>> MakeCuda(GpuId gpu, KvFormat kv = KvFormat::kBf16,
                                                    bool recorded = true);

  // Experts out of slots on the card of `backend`, as `options` say; until AllOnHost(), which comes
  // before the backend goes.
  absl::Status HoldOnCard(Backend& backend, const GpuInfo& gpu, const ExpertOptions& options);
  void AllOnHost();
  const ExpertTiers& tiers() const { return experts_->tiers(); }

  // Sees the residual after every layer; null: nobody looks.
  using OnResidual = std::function<void(uint32_t layer, std::span<const float>)>;
  absl::Status RunTrunk(Backend& backend, std::span<const Segment> segments, Phase phase,
                        const OnResidual& on_residual = nullptr);
  absl::Status RunDraft(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens,
                        Backend::DraftSource source);
  // A pass over one sequence and the logits of all its rows, (rows, vocab).
  // `predict`: before each layer's experts are combined, the next layer's are predicted.
  std::vector<float> Logits(Backend& backend, Sequence& sequence, std::span<const TokenId> tokens,
                            Phase phase, bool predict = false);
  // Of the experts that the router chose, how many had been predicted.
  double predicted_share() const {
    return static_cast<double>(predicted_) / static_cast<double>(chosen_);
  }

 private:
  absl::Status LoadExperts(const ExpertOptions& options, const PlacementCard* card);
  absl::Status RunLayer(Backend& backend, LayerId layer, TrafficKind kind);
  absl::Status Predict(Backend& backend, LayerId layer, const Routes& routes);

  PassLimits limits_;
  WorkerTeam team_{2};
  SteadyClock clock_;
  std::unique_ptr<Pack> pack_;
  ModelWeights weights_;
  std::unique_ptr<ExpertPlacement> experts_;
  bool predict_ = false;
  std::vector<uint32_t> prediction_;  // of the layer to come
  uint64_t predicted_ = 0;
  uint64_t chosen_ = 0;
};

}  // namespace hearth
