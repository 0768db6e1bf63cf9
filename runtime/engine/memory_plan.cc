#include "runtime/engine/memory_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/backend/cpu/cpu_backend.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/engine/expert_placement.h"

namespace hearth {
namespace {

// Code, tokenizer, stacks, tables: what a process takes besides everything that is planned.
constexpr uint64_t kProcessBytes = 48_MiB;

uint64_t Sum(const MemoryPlan& plan, bool on_card) {
  uint64_t sum = 0;
  for (const MemoryItem& item : plan.items) {
    if (item.on_card == on_card) sum += item.bytes;
  }
  return sum;
}

MemoryItem RamExperts(const MemoryPlanInput& in) {
  uint64_t all_bytes = 0;
  for (uint32_t l = 0; l < in.pack.experts.layer_count(); ++l) {
    all_bytes += in.pack.experts.layout(LayerId(l)).stride_bytes() * in.pack.experts.expert_count();
  }
  switch (in.experts.ram) {
    case RamTier::kWhole:
      return {.what = "experts", .bytes = all_bytes};
    case RamTier::kBudget:
      return {.what = "expert budget", .bytes = std::min(in.experts.ram_budget_bytes, all_bytes)};
    case RamTier::kMapped:
    case RamTier::kDaemon:
      break;
  }
  return {};
}

}  // namespace

uint64_t MemoryPlan::ram_bytes() const { return Sum(*this, false); }
uint64_t MemoryPlan::card_bytes() const { return Sum(*this, true); }

CudaBackendOptions CudaOptionsOf(const ExpertFile& experts, Arithmetic arithmetic,
                                 const PassLimits& limits, KvFormat kv_format) {
  CudaBackendOptions options;
  options.arithmetic = arithmetic;
  options.limits = limits;
  options.kv_format = kv_format;
  options.recorded_windows = true;
  options.fp32_rows = false;
  for (uint32_t l = 0; l < experts.layer_count(); ++l) {
    options.rotated_rows |= experts.layout(LayerId(l)).format == ExpertFormat::kXt;
    options.fp32_rows |= experts.layout(LayerId(l)).format != ExpertFormat::kNvfp4;
  }
  return options;
}

absl::StatusOr<MemoryPlan> PlanMemory(const MemoryPlanInput& in) {
  MemoryPlan plan;
  const auto add = [&plan](MemoryItem item) {
    if (item.bytes != 0) plan.items.push_back(std::move(item));
  };
  add(RamExperts(in));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t slot_bytes, SlotBytes(in.pack.experts, in.experts));
  add({.what = in.gpu == nullptr ? "slots in place of a card" : "slots",
       .bytes = slot_bytes,
       .on_card = in.gpu != nullptr});
  uint64_t dense = in.pack.dense.file().bytes() + (in.pack.mtp ? in.pack.mtp->file().bytes() : 0);
  if (in.arithmetic == Arithmetic::kReference) dense *= 4;  // Q8 decoded to fp32
  add({.what = "dense weights", .bytes = dense});
  if (in.pack.ngram && in.ngram_in_memory) {
    add({.what = "n-gram table", .bytes = in.pack.ngram->file().bytes()});
  }
  const std::string state =
      in.sequences == 1
          ? absl::StrCat("state of ", in.context_tokens, " tokens")
          : absl::StrCat("state of ", in.sequences, " times ", in.context_tokens, " tokens");
  const ModelGeometry& g = in.pack.manifest.geometry;
  uint64_t buffers =
      ExpertBufferBytes(in.pack.experts, g, in.limits, in.worker_count, in.arithmetic);
  if (in.gpu == nullptr) {
    const CpuBackendBytes cpu = PlanCpuBackend(g, in.limits, in.worker_count, in.context_tokens);
    buffers += cpu.buffers;
    add({.what = state, .bytes = cpu.sequence * in.sequences});
  } else {
    HEARTH_ASSIGN_OR_RETURN(
        const CudaBackendBytes card,
        PlanCudaBackend(g, CudaWeightBytes(in.pack),
                        CudaOptionsOf(in.pack.experts, in.arithmetic, in.limits, in.kv_format),
                        in.context_tokens));
    buffers += card.pinned;
    add({.what = "dense weights on the card", .bytes = card.weights, .on_card = true});
    add({.what = "buffers on the card", .bytes = card.buffers, .on_card = true});
    add({.what = state, .bytes = card.sequence * in.sequences, .on_card = true});
  }
  add({.what = "kept prompts", .bytes = in.prefix_bytes});
  add({.what = "buffers", .bytes = buffers});
  add({.what = "program", .bytes = kProcessBytes});
  std::stable_sort(plan.items.begin(), plan.items.end(),
                   [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
  return plan;
}

std::string DescribeMemoryPlan(const MemoryPlan& plan, const MemoryLimit& limit) {
  std::string parts;
  for (const MemoryItem& item : plan.items) {
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", item.what, " ", FormatBytes(item.bytes));
  }
  std::string text =
      absl::StrCat("RAM ", FormatBytes(plan.ram_bytes()), " of ",
                   FormatBytes(limit.available_bytes), " available (", limit.source, ")");
  if (plan.card_bytes() != 0) absl::StrAppend(&text, ", VRAM ", FormatBytes(plan.card_bytes()));
  return absl::StrCat(text, ": ", parts);
}

absl::Status CheckMemoryPlan(const MemoryPlan& plan, const MemoryLimit& limit) {
  if (plan.ram_bytes() <= limit.available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("does not fit: ", DescribeMemoryPlan(plan, limit),
                   "; --ram-budget keeps fewer experts in RAM, fewer --slots or a pack of fewer "
                   "bits take less, or free memory"));
}

}  // namespace hearth
