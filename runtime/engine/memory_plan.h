// Everything that running a model will take, RAM and card together, known before anything is
// loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/reader/pack.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda/cuda_backend.h"
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
  uint32_t context_tokens = 0;  // of each sequence that the plan has room for
  uint32_t sequences = 1;
  uint64_t prefix_bytes = 0;     // for states of prompts that are kept, in RAM
  const GpuInfo* gpu = nullptr;  // null: no card, its slots are RAM too
  KvFormat kv_format = KvFormat::kBf16;
};

// How the backend of a card is made for these experts, but for the card itself.
CudaBackendOptions CudaOptionsOf(const ExpertFile& experts, Arithmetic arithmetic,
                                 const PassLimits& limits, KvFormat kv_format);

// InvalidArgument or ResourceExhausted from the slots' budget: it says what would do; the latter
// also when the dense path does not fit the card. Slots of a card that were given no budget are not
// in the plan: they take what is free when they are made.
absl::StatusOr<MemoryPlan> PlanMemory(const MemoryPlanInput& input);

// ResourceExhausted that shows the plan, the limit and its source, and what to do.
absl::Status CheckMemoryPlan(const MemoryPlan& plan, const MemoryLimit& limit);

// A line of the parts, largest first, and one of the sum against the limit.
std::string DescribeMemoryPlan(const MemoryPlan& plan, const MemoryLimit& limit);

}  // namespace hearth
