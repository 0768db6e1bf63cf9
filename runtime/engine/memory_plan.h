// Everything that running a model will take, RAM and card together, known before anything is
// loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pack/reader/pack.h"
#include "runtime/backend/backend.h"
#include "runtime/base/arithmetic.h"
#include "runtime/base/memory_limits.h"
#include "runtime/engine/expert_options.h"

namespace hearth {

struct MemoryItem {
  std::string what;
  uint64_t bytes = 0;
  bool on_card = false;
};

struct MemoryPlan {
  std::vector<MemoryItem> items;
  uint64_t ram_bytes() const;
  uint64_t card_bytes() const;
};

struct MemoryPlanInput {
  const Pack& pack;
  const ExpertOptions& experts;
  Arithmetic arithmetic = Arithmetic::kFast;
  PassLimits limits;
  bool ngram_in_memory = false;
  uint32_t worker_count = 1;
  uint32_t context_tokens = 0;  // of the one sequence that the plan has room for
  bool host_plays_card = true;  // the slots are RAM too
};

// InvalidArgument or ResourceExhausted from the slots' budget: it says what would do.
absl::StatusOr<MemoryPlan> PlanMemory(const MemoryPlanInput& input);

// ResourceExhausted that shows the plan, the limit and its source, and what to do.
absl::Status CheckMemoryPlan(const MemoryPlan& plan, const MemoryLimit& limit);

// A line of the parts, largest first, and one of the sum against the limit.
std::string DescribeMemoryPlan(const MemoryPlan& plan, const MemoryLimit& limit);

}  // namespace hearth
