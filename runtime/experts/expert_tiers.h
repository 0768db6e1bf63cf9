// Serves a layer's routed experts from wherever they are: VRAM slots, uploads over PCIe, the CPU
// from RAM, or the drive. Takes the routes, finds every distinct expert, chooses a service for it,
// has it computed and enters it in the ledger; decides with the slot cache what VRAM should hold
// next. The answer does not depend on any of that.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/slots/slot_cache.h"
#include "cache/store/expert_store.h"
#include "runtime/base/clock.h"
#include "runtime/base/window_trace.h"
#include "runtime/experts/card_table.h"
#include "runtime/experts/expert_card.h"
#include "runtime/experts/expert_pool.h"
#include "runtime/experts/look_ahead_gate.h"
#include "runtime/experts/promotions.h"
#include "runtime/experts/slot_device.h"
#include "runtime/plan/ledger.h"
#include "runtime/plan/service_choice.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

// Sees who served which expert, for whoever keeps a history of it.
class TrafficObserver {
 public:
  virtual ~TrafficObserver() = default;
  virtual void OnLayerServed(LayerId layer, const WindowPlan& plan, TrafficKind kind) = 0;
  virtual void OnWindowEnd(uint32_t token_count) = 0;
};

// The experts that the next layer may want; asked for while this layer's reads are under way.
struct NextLayer {
  LayerId layer;
  absl::FunctionRef<std::span<const uint32_t>()> predict;
};

struct ExpertTiersOptions {
  uint32_t rows_max = 0;  // of one pass
  uint32_t ranks = 0;
  double pcie_share = -1;  // of a layer's misses, 0 to 1; negative: what costs least
  uint64_t pcie_window_bytes_max = UINT64_MAX;  // uploads of one window
  uint32_t promotions_max = 8;                  // on their way in the background
  ServiceCosts costs = {};  // what is known beforehand; measured on the way from then on
  // The device answers every upload sooner than this, or it is lost and so is every later pass.
  int64_t upload_wait_ns = 60'000'000'000;
};

// Used by one thread, which owns the slot cache and runs the passes.
class ExpertTiers final : private ArrivalSink, private UploadSink, private ExpertDoneSink {
 public:
  struct Deps {  // all outlive this
    ExpertStore& store;
    ExpertPool& pool;
    Clock& clock;
    SlotCache* slots = nullptr;  // null, with device: no VRAM
    SlotDevice* device = nullptr;
    ExpertCard* card = nullptr;  // computes what is in slots; where the device says that one does
  };
  ExpertTiers(const Deps& deps, const ExpertTiersOptions& options);
  ~ExpertTiers() override;

  // Fills free slots with the hottest experts, reading what is not in RAM; `progress` gets bytes
  // done and in all.
  absl::Status FillSlots(const std::function<void(uint64_t, uint64_t)>& progress);

  // Computes the experts of one layer: output (rows, ranks, hidden), unweighted. Entries of experts
  // that are given to the card are not written, they are on their way there when this returns. What
  // the layer before left on the card has been passed when this is called. On an error the output
  // is worthless, everything is as before, and the next pass may go on.
  // `next`, unless null, is what the drive may read ahead when it has nothing else to do.
  absl::Status RunLayer(LayerId layer, const RouteInput& routes, const ExpertRows& input,
                        TrafficKind kind, std::span<float> output, const NextLayer* next);
  // What is left to do of the layer that has run, which nobody waits for: best after the backend
  // has been given its outputs. plan() is complete after RunLayer, the ledger after this.
  void EndLayer();
  // The pass is over and `token_count` of its rows were kept.
  void EndWindow(uint32_t token_count);

  const WindowPlan& plan() const { return plan_; }  // of the last layer
  const Ledger& ledger() const { return ledger_; }
  const ServiceCosts& costs() const { return costs_; }  // of windows
  const ServiceCosts& prompt_costs() const { return prompt_costs_; }
  const CardTable* card_table() const { return table_.get(); }  // null without a card
  // What happens when, from the next layer on; null: nobody asks, after what is still under way has
  // been told. Outlives that.
  void set_trace(WindowTrace* trace);
  void set_observer(TrafficObserver* observer) { observer_ = observer; }  // null: none

 private:
  // Who computes the layer at hand: the pool alone, from blobs or from what it decodes first, or
  // with the card, which has what is in slots.
  enum class Way : uint8_t { kPool, kDecode, kCard };
  struct Item {  // one expert of the plan at hand
    SlotLease slot;
    ExpertLease ram;
    SlotRef upload;        // kPcie: the slot it was copied into; none: the card streams it
    Swap swap;             // wanted: what makes it resident
    int64_t asked_ns = 0;  // kPcie, kSsd
    int64_t arrived_ns = 0;
    absl::Status status;  // kPcie, kSsd: of the arrival
  };

  static bool ArrivesLate(Service service) {
    return service == Service::kPcie || service == Service::kSsd;
  }
  bool HostReadsSlots() const;
  Way WayOf(LayerId layer, const ExpertRows& input) const;
  bool UsesSlots() const { return deps_.slots != nullptr && (way_ != Way::kPool || host_reads_); }
  // Where the card follows the routes: what it takes of plan_.experts[i].
  EntryClaim ClaimOf(size_t i) const;
  void Observe(LayerId layer, TrafficKind kind);
  void FindExperts(LayerId layer);
  void ProposeSwaps(TrafficKind kind);
  void Choose(LayerId layer, TrafficKind kind);
  bool PlaceUpload(ExpertKey key, size_t i, bool may_take_slot);
  void StartArrivals(LayerId layer);
  absl::StatusOr<const std::byte*> AwaitDecodable(LayerId layer, size_t i);
  void PlaceWeights(LayerId layer);
  absl::Status AwaitUploads(LayerId layer);
  absl::Status BeginCard(LayerId layer, const ExpertRows& input);
  absl::Status RunPlan(LayerId layer, const ExpertRows& input, std::span<float> output,
                       const NextLayer* next);
  absl::Status RetireCard();
  absl::Status FirstError() const;
  void LookAhead(const NextLayer& next);
  void Promote(const Swap& swap, ExpertLease source);
  void KeepOrDrop(bool keep);
  uint32_t StartFills();
  void Record();
  void TraceArrivals(LayerId layer) const;

  void OnArrival(uint32_t index, absl::StatusOr<ExpertLease> lease) override;
  void OnUploaded(uint32_t index, const absl::Status& status) override;
  void OnExpertDone(uint32_t index) override;

  ServiceCosts& costs_at_hand() { return kind_ == TrafficKind::kPrompt ? prompt_costs_ : costs_; }

  Deps deps_;
  ExpertTiersOptions options_;
  std::unique_ptr<Promotions> promotions_;  // null without slots
  std::unique_ptr<CardTable> table_;        // null without a card
  TrafficObserver* observer_ = nullptr;
  WindowTrace* trace_ = nullptr;
  Ledger ledger_;
  // Of windows and of prompts, whose experts have many rows each.
  ServiceCosts costs_;
  ServiceCosts prompt_costs_;
  uint64_t pcie_bytes_left_ = 0;  // of this window
  bool window_has_prompt_ = false;
  bool more_fills_ = false;  // free slots may still be filled from what prompts have shown
  bool host_reads_ = false;  // the CPU can read slots
  absl::Status lost_;        // why nothing works any more
  absl::Status late_error_;  // found between passes: the next one fails

  // Of the layer at hand, by index into plan_.experts unless said otherwise.
  WindowPlan plan_;
  std::vector<Item> items_;
  std::vector<ExpertSighting> sightings_;
  std::vector<Residency> residency_;
  std::vector<float> heat_;
  std::vector<uint8_t> wanted_;
  std::vector<ExpertWeights> weights_;
  std::vector<ExpertId> fetched_;        // what is asked of the store...
  std::vector<uint32_t> fetched_index_;  // ...and where each is in the plan
  std::vector<ExpertId> ahead_;
  Way way_ = Way::kPool;
  std::span<const EntryClaim> claims_;  // by route entry; empty: the card waits to be told
  bool has_pool_work_ = false;
  // Between RunLayer() and EndLayer().
  bool is_ending_ = false;
  LayerId layer_;
  TrafficKind kind_ = TrafficKind::kWindow;
  bool has_succeeded_ = false;
  LayerTimes times_;
  int64_t pool_ns_ = 0;                    // from when its rows were there; 0: it had nothing to do
  std::atomic<uint32_t> uploads_left_{0};  // that the layer waits for itself, not the pool

  // What the card may still be reading: of the layer that it was last given, until that is retired.
  std::vector<CardExpert> card_experts_;
  std::vector<StreamedExpert> streamed_;
  LayerId card_layer_;        // not valid: retired
  bool card_counts_ = false;  // its layer is in the ledger
  std::vector<SlotLease> card_leases_;
  std::vector<ExpertLease> streamed_leases_;
  std::vector<SlotRef> card_uploads_;  // to be given back then

  LookAheadGate gate_;
  uint32_t ahead_layer_count_ = 0;  // layers that read ahead
  std::vector<Swap> fill_;
};

}  // namespace hearth
