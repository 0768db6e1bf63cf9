#include "cache/slots/slot_budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// A share times a count that should be a whole number may come out this much below it.
constexpr double kShareRounding = 1e-9;

// A large pool swaps more in a window than a small one, and slots whose experts have gone come free
// at its end only.
constexpr uint32_t kSpareCountMin = 8;
constexpr uint32_t kSlotsPerSpare = 64;

struct PoolDemand {
  uint64_t slot_bytes = 0;
  uint32_t expert_total = 0;
  uint32_t spare_count_max = 0;

  uint64_t Bytes(uint32_t slots) const {
    return (uint64_t{slots} + SpareCount(slots, expert_total, spare_count_max)) * slot_bytes;
  }
};

absl::Status Check(const SlotBudget& budget, const SlotDemand& demand) {
  const int given = (budget.bytes != 0) + (budget.slot_count != 0) + (budget.share != 0);
  if (given > 1) {
    return absl::InvalidArgumentError(absl::StrCat("slot budget: bytes ", budget.bytes, ", slots ",
                                                   budget.slot_count, " and share ", budget.share,
                                                   " at once; give one of the three"));
  }
  if (!(budget.share >= 0 && budget.share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("slot budget: a share of ", budget.share,
                                                   " of the experts; expected above 0, at most 1"));
  }
  if (demand.blob_bytes.empty() || demand.expert_count == 0) {
    return absl::InvalidArgumentError(absl::StrCat("slot budget: ", demand.blob_bytes.size(),
                                                   " layers of ", demand.expert_count,
                                                   " experts; expected at least one of each"));
  }
  if (uint64_t{demand.expert_count} * demand.blob_bytes.size() > UINT32_MAX / 2) {
    return absl::InvalidArgumentError(absl::StrCat("slot budget: ", demand.blob_bytes.size(),
                                                   " layers of ", demand.expert_count,
                                                   " experts are more than 2^31"));
  }
  for (size_t l = 0; l < demand.blob_bytes.size(); ++l) {
    if (demand.blob_bytes[l] == 0 || demand.blob_bytes[l] > uint64_t{1} << 31) {
      return absl::InvalidArgumentError(absl::StrCat("slot budget: layer ", l, " has experts of ",
                                                     demand.blob_bytes[l],
                                                     " bytes; expected 1 to 2^31"));
    }
  }
  return absl::OkStatus();
}

// In proportion to the experts, by largest remainder; `count` is at most all experts.
std::vector<uint32_t> ShareCount(uint64_t count, const std::vector<PoolDemand>& pools) {
  uint64_t all = 0;
  for (const PoolDemand& p : pools) all += p.expert_total;
  std::vector<uint32_t> slots;
  std::vector<uint64_t> remainders;
  uint64_t given = 0;
  for (const PoolDemand& p : pools) {
    slots.push_back(static_cast<uint32_t>(count * p.expert_total / all));
    remainders.push_back(count * p.expert_total % all);
    given += slots.back();
  }
  std::vector<size_t> order(pools.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  for (size_t i = 0; given < count; ++i, ++given) ++slots[order[i]];
  return slots;
}

std::vector<uint32_t> ShareBytes(uint64_t bytes, const std::vector<PoolDemand>& pools) {
  double expert_bytes = 0;
  double spare_bytes = 0;
  for (const PoolDemand& p : pools) {
    expert_bytes += static_cast<double>(p.expert_total) * static_cast<double>(p.slot_bytes);
    spare_bytes += static_cast<double>(std::min(p.spare_count_max, p.expert_total)) *
                   static_cast<double>(p.slot_bytes);
  }
  const double share =
      std::clamp((static_cast<double>(bytes) - spare_bytes) / expert_bytes, 0.0, 1.0);
  std::vector<uint32_t> slots;
  uint64_t used = 0;
  for (const PoolDemand& p : pools) {
    slots.push_back(static_cast<uint32_t>(share * p.expert_total));
    used += p.Bytes(slots.back());
  }
  for (size_t p = 0; used > bytes && p < pools.size(); ++p) {  // doubles round, bytes must not
    used -= pools[p].Bytes(slots[p]);
    slots[p] -= slots[p] > 0 ? 1 : 0;
    used += pools[p].Bytes(slots[p]);
  }
  while (true) {  // one slot at a time to the emptiest pool where it still fits
    size_t best = pools.size();
    for (size_t p = 0; p < pools.size(); ++p) {
      if (slots[p] == pools[p].expert_total) continue;
      if (used - pools[p].Bytes(slots[p]) + pools[p].Bytes(slots[p] + 1) > bytes) continue;
      if (best == pools.size() || uint64_t{slots[p]} * pools[best].expert_total <
                                      uint64_t{slots[best]} * pools[p].expert_total) {
        best = p;
      }
    }
    if (best == pools.size()) return slots;
    used += pools[best].Bytes(slots[best] + 1) - pools[best].Bytes(slots[best]);
    ++slots[best];
  }
}

absl::Status TooFewBytes(uint64_t bytes, const std::vector<PoolDemand>& pools) {
  const PoolDemand* least = &pools.front();
  for (const PoolDemand& p : pools) {
    if (p.Bytes(1) < least->Bytes(1)) least = &p;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("slot budget: ", bytes, " bytes hold no expert; a slot of ", least->slot_bytes,
                   " bytes and its ", SpareCount(1, least->expert_total, least->spare_count_max),
                   " spare ones take ", least->Bytes(1), " (", FormatBytes(least->Bytes(1)),
                   "): give at least that, or no slots at all"));
}

}  // namespace

uint32_t SpareCount(uint32_t slot_count, uint32_t expert_total, uint32_t spare_count_max) {
  if (slot_count == 0) return 0;
  return std::min({spare_count_max, std::max(kSpareCountMin, slot_count / kSlotsPerSpare),
                   expert_total - slot_count});
}

absl::StatusOr<SlotPlan> ShareSlots(const SlotBudget& budget, const SlotDemand& demand) {
  HEARTH_RETURN_IF_ERROR(Check(budget, demand));
  SlotPlan plan;
  std::vector<uint64_t> blob_bytes;  // of each pool
  for (uint32_t l = 0; l < demand.blob_bytes.size(); ++l) {
    const auto at = std::find(blob_bytes.begin(), blob_bytes.end(), demand.blob_bytes[l]);
    const auto p = static_cast<size_t>(at - blob_bytes.begin());
    if (p == plan.pools.size()) {
      blob_bytes.push_back(demand.blob_bytes[l]);
      plan.pools.push_back({.slot_bytes = AlignUp(demand.blob_bytes[l], kSlotAlignBytes)});
    }
    plan.pools[p].layers.push_back(LayerId(l));
  }
  std::vector<PoolDemand> pools;
  uint64_t all = 0;
  for (const SlotPoolShape& p : plan.pools) {
    const auto experts = static_cast<uint32_t>(p.layers.size() * demand.expert_count);
    pools.push_back({p.slot_bytes, experts, demand.spare_count});
    all += experts;
  }

  std::vector<uint32_t> slots(pools.size(), 0);
  if (budget.bytes != 0) {
    slots = ShareBytes(budget.bytes, pools);
    if (std::all_of(slots.begin(), slots.end(), [](uint32_t s) { return s == 0; })) {
      return TooFewBytes(budget.bytes, pools);
    }
  } else if (budget.slot_count != 0) {
    if (budget.slot_count > all) {
      plan.notes.push_back(absl::StrCat("slots: ", budget.slot_count,
                                        " were asked for, the model's ", all,
                                        " experts take no more than ", all));
    }
    slots = ShareCount(std::min(budget.slot_count, all), pools);
  } else if (budget.share != 0) {
    const auto count =
        static_cast<uint64_t>(budget.share * static_cast<double>(all) + kShareRounding);
    if (count == 0) {
      plan.notes.push_back(absl::StrCat("slots: a share of ", budget.share, " of ", all,
                                        " experts is less than one; there is one slot"));
    }
    slots = ShareCount(std::max<uint64_t>(count, 1), pools);
  }
  const bool any = std::any_of(slots.begin(), slots.end(), [](uint32_t s) { return s != 0; });
  for (size_t p = 0; p < pools.size(); ++p) {
    plan.pools[p].slot_count = slots[p];
    plan.pools[p].spare_count = SpareCount(slots[p], pools[p].expert_total, demand.spare_count);
    if (any && slots[p] == 0) {
      plan.notes.push_back(absl::StrCat("slots: none are left for the ",
                                        plan.pools[p].layers.size(), " layers with experts of ",
                                        blob_bytes[p], " bytes; a larger budget gives them some"));
    }
  }
  return plan;
}

}  // namespace hearth
