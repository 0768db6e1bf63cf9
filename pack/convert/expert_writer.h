// Writes experts.bin, layer by layer: bits are moved, narrowed or encoded as XT, in order, with a
// bounded number of experts in memory. The bytes do not depend on how many workers there are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/convert/checkpoint.h"
#include "pack/convert/expert_repack.h"
#include "pack/format/expert_layout.h"
#include "pack/format/manifest.h"
#include "pack/quant/xt_device.h"
#include "pack/quant/xt_feedback.h"
#include "runtime/base/ids.h"
#include "runtime/base/worker_team.h"

namespace hearth {

struct BuildProgress {
  std::string stage;        // "dense weights", "MTP head", "experts", "n-gram table", "source hash"
  uint64_t done_bytes = 0;  // weights when counts_weights
  uint64_t total_bytes = 0;
  bool counts_weights = false;  // of the stage "encoding experts"
};
using BuildProgressFn =
    std::function<void(const BuildProgress&)>;  // called on one thread at a time

// Of the experts of a layer, or of one expert; null: none.
struct XtExpertFeedback {
  std::shared_ptr<const XtFeedback> gate_up;
  std::shared_ptr<const XtFeedback> down;
};

struct ExpertWritePlan {
  std::string dir;
  std::vector<ExpertLayout> layouts;  // of each layer, the MTP layer last
  uint32_t expert_count = 0;          // of each layer
  // Thread-safe. Errors name the expert.
  std::function<absl::Status(ExpertKey, SourceExpert&)> read;
  // For XT layers, in order, on one thread at a time; empty: no feedback.
  std::function<absl::StatusOr<XtExpertFeedback>(ExpertKey)> feedback;
  BuildProgressFn progress;
  XtMatrixDevice* device = nullptr;  // encodes what it takes, if any; outlives the call
};

struct ExpertWriteResult {
  PackFile file;
  RepackStats stats;     // of all layers
  RepackStats xt_stats;  // of those in XT
};

absl::StatusOr<ExpertWriteResult> WriteExperts(const ExpertWritePlan& plan, WorkerTeam& team);

}  // namespace hearth
