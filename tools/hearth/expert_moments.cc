#include "tools/hearth/expert_moments.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/format/xt_matrix.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

// Rows of its own at which an expert's moment counts as much as its layer's, in widths.
constexpr uint64_t kShrinkWidths = 4;
constexpr uint32_t kMomentRowsPerTask = 16;

uint64_t SquareBytes(uint64_t side) { return side * side * sizeof(float); }

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertMoments>> ExpertMoments::Create(const ModelGeometry& geometry,
                                                                     WorkerTeam& team,
                                                                     const Options& options) {
  const uint64_t layers = geometry.layer_count();
  const uint64_t width = geometry.moe.expert_width;
  const uint64_t shared_bytes = layers * (SquareBytes(geometry.hidden) + SquareBytes(width));
  if (shared_bytes > options.memory_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "calibration: second moments of ", layers, " layers take ", FormatBytes(shared_bytes),
        ", allowed are ", FormatBytes(options.memory_bytes_max), ": use --feedback off"));
  }
  const uint64_t expert_bytes = layers * geometry.moe.expert_count * SquareBytes(width);
  std::unique_ptr<ExpertMoments> m(new ExpertMoments(geometry, team, options));
  m->per_expert_ = shared_bytes + expert_bytes <= options.memory_bytes_max;
  m->memory_bytes_ = shared_bytes + (m->per_expert_ ? expert_bytes : 0);
  m->layers_.resize(layers);
  for (Layer& layer : m->layers_) {
    layer.x.resize(size_t{geometry.hidden} * geometry.hidden);
    layer.h.resize(width * width);
    if (!m->per_expert_) continue;
    layer.expert_rows.resize(geometry.moe.expert_count);
    layer.expert_h.resize(geometry.moe.expert_count, std::vector<float>(width * width));
  }
  return m;
}

void ExpertMoments::AddRows(std::span<const float> rows, uint32_t cols,
                            std::vector<float>& moment) {
  const auto tasks = (cols + kMomentRowsPerTask - 1) / kMomentRowsPerTask;
  team_.ForEach(tasks, [&](uint32_t, uint32_t task) {
    const uint32_t begin = task * kMomentRowsPerTask;
    AddSecondMomentRows(rows, cols, begin, std::min(cols, begin + kMomentRowsPerTask), moment);
  });
}

void ExpertMoments::OnExperts(LayerId layer_id, const ExpertActivity& activity) {
  if (layer_id.value >= layers_.size()) return;  // the MTP layer keeps its format
  Layer& layer = layers_[layer_id.value];
  const uint32_t hidden = geometry_.hidden;
  const uint32_t width = geometry_.moe.expert_width;
  const auto rotate = [this](std::span<const float> rows, uint32_t cols) {
    rotated_.assign(rows.begin(), rows.end());
    for (size_t at = 0; at < rotated_.size(); at += cols) {
      RotateXt(std::span(rotated_).subspan(at, cols));
    }
  };
  rotate(activity.x, hidden);
  AddRows(rotated_, hidden, layer.x);
  layer.x_rows += activity.x.size() / hidden;

  rotate(activity.hidden.first(activity.plan.entries.size() * width), width);
  AddRows(rotated_, width, layer.h);
  layer.h_rows += activity.plan.entries.size();
  if (!per_expert_) return;
  const std::vector<PlannedExpert>& experts = activity.plan.experts;
  team_.ForEach(static_cast<uint32_t>(experts.size()), [&](uint32_t, uint32_t i) {
    const PlannedExpert& planned = experts[i];
    const std::span<const float> rows = std::span<const float>(rotated_).subspan(
        size_t{planned.entry_begin} * width, size_t{planned.entry_count} * width);
    AddSecondMomentRows(rows, width, 0, width, layer.expert_h[planned.expert.value]);
    layer.expert_rows[planned.expert.value] += planned.entry_count;
  });
}

absl::StatusOr<std::shared_ptr<const XtFeedback>> ExpertMoments::Factor(std::vector<float> moment,
                                                                        uint32_t cols) const {
  MirrorLower(moment, cols);
  HEARTH_ASSIGN_OR_RETURN(XtFeedback feedback, XtFeedback::Create(moment, cols, options_.damping));
  return std::make_shared<const XtFeedback>(std::move(feedback));
}

absl::Status ExpertMoments::BeginLayer(LayerId id) {
  if (current_ == id) return absl::OkStatus();
  const Layer& layer = layers_[id.value];
  HEARTH_ASSIGN_OR_RETURN(shared_.gate_up, Factor(layer.x, geometry_.hidden));
  HEARTH_ASSIGN_OR_RETURN(shared_.down, Factor(layer.h, geometry_.moe.expert_width));
  current_ = id;
  return absl::OkStatus();
}

absl::StatusOr<XtExpertFeedback> ExpertMoments::FeedbackOf(ExpertKey key) {
  HEARTH_RETURN_IF_ERROR(BeginLayer(key.layer));
  if (!per_expert_) return shared_;
  const Layer& layer = layers_[key.layer.value];
  const uint32_t width = geometry_.moe.expert_width;
  const auto rows = static_cast<float>(layer.expert_rows[key.expert.value]);
  const auto prior = static_cast<float>(kShrinkWidths * width);
  std::vector<float> moment = layer.expert_h[key.expert.value];
  const float prior_weight = prior / static_cast<float>(layer.h_rows);
  for (size_t i = 0; i < moment.size(); ++i) {
    moment[i] = (moment[i] + prior_weight * layer.h[i]) / (rows + prior);
  }
  XtExpertFeedback feedback = shared_;
  HEARTH_ASSIGN_OR_RETURN(feedback.down, Factor(std::move(moment), width));
  return feedback;
}

}  // namespace hearth::cli
