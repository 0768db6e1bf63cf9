#include "runtime/experts/card_table.h"

#include <algorithm>
#include <optional>

namespace hearth {
namespace {

// What a window without streams leaves of the distance to what was known of them beforehand: a
// link that was slow once is tried again.
constexpr double kForget = 15.0 / 16;

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
  window_streamed_ |= measured.link_experts != 0;
  window_missed_ |= measured.cpu_experts != 0;
  UpdateSplit(measured, costs_);
}

void CardTable::EndWindow() {
  is_following_ = false;
  layer_ = LayerId();
  victims_.clear();
  if (window_missed_ && !window_streamed_) {
    const auto forget = [](double& value, double known) {
      value += (known - value) * (1 - kForget);
    };
    forget(costs_.link_expert_ns, options_.link_expert_ns);
    forget(costs_.link_layer_ns, 0);
  }
  window_missed_ = window_streamed_ = false;
  UpdateRule();
}

void CardTable::UpdateRule() {
  if (!streams_) return;
  const uint64_t experts_max = options_.pcie_window_bytes_max / blob_bytes_max_;
  StreamRule rule{.experts_max =
                      static_cast<uint32_t>(std::min<uint64_t>(experts_max, UINT32_MAX))};
  SplitMisses(options_.pcie_share, costs_, rule.count);
  if (rule == rule_) return;
  rule_ = rule;
  deps_.card.SetStreamRule(rule);
}

void CardTable::OnResident(ExpertKey key, SlotRef slot) { deps_.card.SetSlot(key, slot); }

// The window under way may find it in the card's table.
void CardTable::OnEviction(ExpertKey key) {
  if (is_following_) victims_.push_back({.layer = key.layer, .lease = deps_.slots.Acquire(key)});
  deps_.card.SetSlot(key, SlotRef());
}

}  // namespace hearth
