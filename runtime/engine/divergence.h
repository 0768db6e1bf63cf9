// How far one model's predictions are from another's on the same text: what a quantisation costs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/engine/model_runner.h"

namespace hearth {

struct Divergence {
  uint64_t position_count = 0;
  double kl_sum = 0;            // of KL(reference || model), in nats
  uint64_t top_same_count = 0;  // positions where both find the same token most likely
  uint64_t scored_count = 0;    // tokens after the first
  double nll_sum = 0;           // of the model, in nats
  double reference_nll_sum = 0;

  double mean_kl() const { return kl_sum / static_cast<double>(position_count); }
  double top_agreement() const {
    return static_cast<double>(top_same_count) / static_cast<double>(position_count);
  }
  void Add(const Divergence& other);
};

// Both runners read the text chunk by chunk in step. At least two tokens, at most either context;
// InvalidArgument when the vocabularies differ. `progress` (tokens done) may be empty.
absl::StatusOr<Divergence> CompareModels(ModelRunner& model, ModelRunner& reference,
                                         std::span<const TokenId> tokens,
                                         const std::function<void(uint64_t)>& progress);

}  // namespace hearth
