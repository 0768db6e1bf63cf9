// Keeps the table of a card that follows the routes by itself (expert_card.h) true to what slots
// and RAM hold, and keeps in place what the table of a window under way names. Decides how many
// misses the card streams: both sides know that before a window, so it follows from what earlier
// ones have cost.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/slots/slot_cache.h"
#include "cache/store/expert_store.h"
#include "runtime/experts/expert_card.h"
#include "runtime/plan/service_choice.h"

namespace hearth {

class CardTable final : private ResidencySink {
 public:
  struct Deps {  // all outlive this
    ExpertStore& store;
    SlotCache& slots;  // as yet empty; nobody else's sink is in it
    ExpertCard& card;
  };
  struct Options {
    double pcie_share = -1;  // of a layer's misses; negative: what costs least
    uint64_t pcie_window_bytes_max = UINT64_MAX;
    double link_expert_ns = 0;  // what is known of it beforehand; 0: nothing
  };
  CardTable(const Deps& deps, const Options& options);
  ~CardTable() override;
  CardTable(const CardTable&) = delete;
  CardTable& operator=(const CardTable&) = delete;

  // The routes of a layer have come: the card has passed the layers before it of this window, and
  // all windows before. Layers of a window rise.
  void BeginLayer(LayerId layer);
  // What the layer's misses have cost.
  void Measured(const SplitMeasurement& measured);
  // The card has passed the window, or the pass was none in which it follows the routes.
  void EndWindow();

  // Whether what the card streams is its own choice, by the table.
  bool streams() const { return streams_; }
  const SplitCosts& costs() const { return costs_; }

 private:
  // A slot that the card may still read although its expert has been evicted.
  struct Victim {
    LayerId layer;
    SlotLease lease;
  };
  void UpdateRule();
  void Probe(StreamRule* rule);
  void OnResident(ExpertKey key, SlotRef slot) override;
  void OnEviction(ExpertKey key) override;

  const Deps deps_;
  const Options options_;
  bool streams_ = false;
  uint64_t blob_bytes_max_ = 0;
  SplitCosts costs_;
  StreamRule rule_;
  uint32_t link_experts_ = 0;  // of the window
  uint32_t cpu_experts_ = 0;
  uint32_t windows_without_link_ = 0;
  LayerId layer_;  // last; not valid: none of this window
  bool is_following_ = false;
  std::vector<Victim> victims_;  // reserved
};

}  // namespace hearth
