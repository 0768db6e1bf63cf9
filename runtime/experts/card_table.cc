#include "runtime/experts/card_table.h"

#include <algorithm>
#include <optional>

namespace hearth {
namespace {

// What a side costs changes, and a first measurement may be far off: the one that the costs speak
// against gets so many experts of a window all the same, the link only in some windows.
constexpr uint32_t kProbes = 4;
constexpr uint32_t kWindowsPerProbe = 32;

}  // namespace

CardTable::CardTable(const Deps& deps, const Options& options)
    : deps_(deps), options_(options), streams_(deps.store.keeps_in_place()) {
  costs_.link_expert_ns = options.link_expert_ns;
  uint32_t slot_count = 0;
  for (const SlotPoolShape& pool : deps.slots.pools()) slot_count += pool.total_count();
  victims_.reserve(slot_count);
  for (uint32_t l = 0; l < deps.store.layer_count(); ++l) {
    blob_bytes_max_ = std::max(blob_bytes_max_, deps.store.layout(LayerId(l)).stride_bytes());
  }
  for (uint32_t l = 0; streams_ && l < deps.store.layer_count(); ++l) {
    for (uint32_t e = 0; e < deps.store.expert_count(); ++e) {
      const ExpertKey key{LayerId(l), ExpertId(e)};
      const std::optional<ExpertLease> lease = deps.store.TryAcquire(key);
      if (lease) deps.card.SetHostBytes(key, lease->bytes());
    }
  }
  UpdateRule();
  deps.slots.set_sink(this);
}

CardTable::~CardTable() { deps_.slots.set_sink(nullptr); }

void CardTable::BeginLayer(LayerId layer) {
  const bool is_new_window = !layer_.valid() || layer <= layer_;
  std::erase_if(victims_, [&](const Victim& v) { return is_new_window || v.layer < layer; });
  layer_ = layer;
  is_following_ = deps_.card.FollowsRoutes();
}

void CardTable::Measured(const SplitMeasurement& measured) {
  link_experts_ += measured.link_experts;
  cpu_experts_ += measured.cpu_experts;
  UpdateSplit(measured, costs_);
}

void CardTable::EndWindow() {
  is_following_ = false;
  layer_ = LayerId();
  victims_.clear();
  UpdateRule();
  link_experts_ = cpu_experts_ = 0;
}

void CardTable::UpdateRule() {
  if (!streams_) return;
  const uint64_t experts_max = options_.pcie_window_bytes_max / blob_bytes_max_;
  StreamRule rule{.experts_max =
                      static_cast<uint32_t>(std::min<uint64_t>(experts_max, UINT32_MAX))};
  SplitMisses(options_.pcie_share, costs_, rule.count);
  if (options_.pcie_share < 0 && costs_.cpu_expert_ns > 0 && costs_.link_expert_ns > 0) {
    Probe(&rule);
  }
  if (rule == rule_) return;
  rule_ = rule;
  deps_.card.SetStreamRule(rule);
}

// By what the window that ends has seen.
void CardTable::Probe(StreamRule* rule) {
  windows_without_link_ = link_experts_ == 0 ? windows_without_link_ + 1 : 0;
  if (cpu_experts_ <= kProbes && link_experts_ != 0) {
    const uint32_t misses = cpu_experts_ + link_experts_;
    const uint32_t most = misses > kProbes ? misses - kProbes : 1;
    rule->experts_max = std::min(rule->experts_max, most);  // the window's last are the CPU's
  } else if (windows_without_link_ >= kWindowsPerProbe) {
    windows_without_link_ = 0;
    for (uint32_t m = 1; m <= StreamRule::kMissesMax; ++m) {
      rule->count[m] = std::max<uint8_t>(rule->count[m], 1);
    }
    rule->experts_max = std::min(rule->experts_max, kProbes);
  }
}

void CardTable::OnResident(ExpertKey key, SlotRef slot) { deps_.card.SetSlot(key, slot); }

// The window under way may find it in the card's table.
void CardTable::OnEviction(ExpertKey key) {
  if (is_following_) victims_.push_back({.layer = key.layer, .lease = deps_.slots.Acquire(key)});
  deps_.card.SetSlot(key, SlotRef());
}

}  // namespace hearth
