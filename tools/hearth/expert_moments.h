// Second moments of what a model's experts read, per layer, in the rotated space of XT: what error
// feedback is made of. Collected while the model runs over texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/convert/expert_writer.h"
#include "pack/format/geometry.h"
#include "runtime/base/worker_team.h"
#include "runtime/engine/model_runner.h"

namespace hearth::cli {

class ExpertMoments final : public PassObserver {
 public:
  struct Options {
    double damping = 0.01;  // of the mean diagonal, added to the diagonal
    // Moments of each expert's own hidden rows, when they fit; else one for all experts of a layer.
    uint64_t memory_bytes_max = uint64_t{4} << 30;
  };
  // ResourceExhausted, with the numbers, when one moment for each layer does not fit. `team`
  // outlives it and is idle while a pass calls the observer.
  static absl::StatusOr<std::unique_ptr<ExpertMoments>> Create(const ModelGeometry& geometry,
                                                               WorkerTeam& team,
                                                               const Options& options);

  void OnRoutes(LayerId, const Routes&) override {}
  void OnResidual(LayerId, std::span<const float>) override {}
  void OnExperts(LayerId layer, const ExpertActivity& activity) override;

  uint64_t memory_bytes() const { return memory_bytes_; }
  bool per_expert() const { return per_expert_; }
  uint64_t row_count() const { return layers_.empty() ? 0 : layers_[0].x_rows; }

  // Of one expert: gate and up from the layer's inputs; down from the layer's hidden rows, or from
  // the expert's own drawn towards the layer's the fewer it has. Asked for layer by layer.
  absl::StatusOr<XtExpertFeedback> FeedbackOf(ExpertKey key);

 private:
  struct Layer {
    std::vector<float> x;  // (hidden, hidden), a sum over x_rows rows; lower triangle
    uint64_t x_rows = 0;
    std::vector<float> h;  // (width, width), a sum over h_rows rows
    uint64_t h_rows = 0;
    std::vector<std::vector<float>> expert_h;  // of each expert; empty unless per_expert_
    std::vector<uint64_t> expert_rows;
  };

  ExpertMoments(const ModelGeometry& geometry, WorkerTeam& team, const Options& options)
      : geometry_(geometry), team_(team), options_(options) {}
  void AddRows(std::span<const float> rows, uint32_t cols, std::vector<float>& moment);
  absl::StatusOr<std::shared_ptr<const XtFeedback>> Factor(std::vector<float> moment,
                                                           uint32_t cols) const;
  absl::Status BeginLayer(LayerId layer);

  const ModelGeometry geometry_;
  WorkerTeam& team_;
  const Options options_;
  bool per_expert_ = false;
  uint64_t memory_bytes_ = 0;
  std::vector<Layer> layers_;
  std::vector<float> rotated_;
  // Of the layer that was asked for last.
  std::optional<LayerId> current_;
  XtExpertFeedback shared_;
};

}  // namespace hearth::cli
