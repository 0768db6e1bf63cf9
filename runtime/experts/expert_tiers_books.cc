// What ExpertTiers does behind a layer and behind a window, which no output waits for: the ledger,
// what changes hands in slots and RAM, and reading ahead.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/experts/expert_tiers.h"

namespace hearth {

// In the background, within what the window has left.
void ExpertTiers::Promote(const Swap& swap, ExpertLease source) {
  const uint64_t bytes = source.bytes().size();
  if (bytes <= pcie_bytes_left_ && promotions_->Start(swap, std::move(source))) {
    pcie_bytes_left_ -= bytes;
  }
}

// What the layer leaves behind: uploads and RAM copies of wanted experts become residents, all else
// goes back to where it was.
void ExpertTiers::KeepOrDrop(bool keep) {
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    Item& item = items_[i];
    SlotLease slot = std::exchange(item.slot, SlotLease());
    if (way_ == Way::kCard && slot.valid()) card_leases_.push_back(std::move(slot));
    ExpertLease ram = std::exchange(item.ram, {});
    const bool wanted = keep && wanted_[i] != 0;
    const uint64_t bytes = ram.bytes().size();
    const bool streamed = way_ == Way::kCard && plan_.experts[i].service == Service::kPcie;
    if (item.upload.valid()) {
      ram = {};
      const SlotRef uploaded = std::exchange(item.upload, SlotRef());
      if (wanted && item.arrived_ns != 0) {  // decoding may have done without the upload
        deps_.slots->BeginSwap(item.swap);
        promotions_->Land(uploaded, item.swap);
        if (way_ == Way::kCard) card_leases_.push_back(deps_.slots->Acquire(item.swap.in));
      } else if (way_ == Way::kCard) {
        card_uploads_.push_back(uploaded);
      } else {
        deps_.slots->Discard(uploaded);
      }
    } else if (streamed) {
      streamed_leases_.push_back(std::move(ram));
      if (!wanted) continue;
      std::optional<ExpertLease> lease = deps_.store.TryAcquire(item.swap.in);
      if (lease) Promote(item.swap, *std::move(lease));
    } else if (wanted) {
      // The pool may be done with it.
      std::optional<ExpertLease> lease =
          bytes != 0 ? std::move(ram) : deps_.store.TryAcquire(item.swap.in);
      if (lease) Promote(item.swap, *std::move(lease));
    }
  }
  if (promotions_ != nullptr) promotions_->Settle();
}

void ExpertTiers::Record() {
  LedgerCounts counts{.wait_ns = times_.wait_ns};
  const uint64_t blob_bytes = deps_.store.layout(layer_).blob_bytes();
  std::array<int64_t, kServiceCount> asked_ns{}, arrived_ns{};
  LayerMeasurement measured;
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    const PlannedExpert& planned = plan_.experts[i];
    ServiceTotals& totals = counts.of(planned.service);
    ++totals.distinct;
    totals.entries += planned.entry_count;
    totals.bytes += blob_bytes;
    if (planned.service == Service::kCpu) measured.cpu_rows += planned.entry_count;
    if (!ArrivesLate(planned.service) || items_[i].asked_ns == 0) continue;
    const auto s = static_cast<uint32_t>(planned.service);
    asked_ns[s] = asked_ns[s] == 0 ? items_[i].asked_ns : std::min(asked_ns[s], items_[i].asked_ns);
    arrived_ns[s] = std::max(arrived_ns[s], items_[i].arrived_ns);
  }
  for (uint32_t s = 0; s < kServiceCount; ++s) {
    counts.services[s].ns = times_.service_ns[s] + (arrived_ns[s] - asked_ns[s]);
  }
  ledger_.Add(layer_, plan_, counts);
  if (trace_ != nullptr) TraceArrivals(layer_);
  const auto pcie = static_cast<uint32_t>(Service::kPcie);
  measured.cpu_experts = static_cast<uint32_t>(counts.of(Service::kCpu).distinct);
  measured.cpu_ns = times_.service_ns[static_cast<uint32_t>(Service::kCpu)] / deps_.pool.workers();
  measured.pcie_experts =
      static_cast<uint32_t>(counts.of(Service::kPcie).distinct - streamed_.size());
  measured.pcie_ns = arrived_ns[pcie] - asked_ns[pcie];
  UpdateCosts(measured, costs_at_hand());
  if (!claims_.empty() && counts.of(Service::kSsd).distinct == 0) {
    table_->Measured({.cpu_experts = measured.cpu_experts, .cpu_ns = pool_ns_});
  }
  if (observer_ != nullptr) observer_->OnLayerServed(layer_, plan_, kind_);
}

void ExpertTiers::TraceArrivals(LayerId layer) const {
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    const PlannedExpert& planned = plan_.experts[i];
    const Item& item = items_[i];
    if (!ArrivesLate(planned.service) || item.arrived_ns == 0) continue;
    const bool is_read = planned.service == Service::kSsd;
    trace_->Add({.name = is_read ? "read" : "upload",
                 .lane = is_read ? TraceLane::kNvme : TraceLane::kCopy,
                 .begin_ns = item.asked_ns,
                 .end_ns = item.arrived_ns,
                 .layer = layer,
                 .expert = planned.expert,
                 .row_count = planned.entry_count,
                 .bytes = deps_.store.layout(layer).blob_bytes()});
  }
}

// A slot that is free costs nobody anything: the hottest of what RAM has goes there. After a part
// of a prompt there is time to wait for copies and go on; a window does not wait. Returns how many
// were started.
uint32_t ExpertTiers::StartFills() {
  const size_t count = deps_.slots->ProposeFill(fill_);
  uint32_t started = 0;
  more_fills_ = false;
  for (size_t i = 0; i < count && deps_.slots->Heat(fill_[i].in) > 0; ++i) {
    const uint64_t bytes = deps_.store.layout(fill_[i].in.layer).stride_bytes();
    std::optional<ExpertLease> lease = deps_.store.TryAcquire(fill_[i].in);
    if (!lease) continue;
    if (window_has_prompt_ && !promotions_->has_room()) late_error_.Update(promotions_->Drain());
    more_fills_ = bytes > pcie_bytes_left_ || !promotions_->Start(fill_[i], *std::move(lease));
    if (more_fills_) break;
    pcie_bytes_left_ -= bytes;
    ++started;
  }
  more_fills_ |= started == fill_.size();
  return started;
}

void ExpertTiers::EndWindow(uint32_t token_count) {
  EndLayer();
  late_error_.Update(RetireCard());
  if (table_ != nullptr) table_->EndWindow();
  if (deps_.slots != nullptr) {
    promotions_->Settle();
    deps_.slots->EndWindow(token_count);
    more_fills_ |= window_has_prompt_;
    for (bool landed = true; landed && more_fills_;) {
      const uint64_t swap_count = deps_.slots->stats().swap_count;
      if (StartFills() == 0 || !window_has_prompt_) break;
      late_error_.Update(promotions_->Drain());
      landed = deps_.slots->stats().swap_count != swap_count;
    }
  }
  deps_.store.EndWindow(token_count);
  pcie_bytes_left_ = options_.pcie_window_bytes_max;
  window_has_prompt_ = false;
  if (observer_ != nullptr) observer_->OnWindowEnd(token_count);
}

void ExpertTiers::LookAhead(const NextLayer& next) {
  if (!gate_.Open()) return;
  ahead_.clear();
  for (const uint32_t expert : next.predict()) {
    const ExpertKey key{next.layer, ExpertId(expert)};
    if (std::find(ahead_.begin(), ahead_.end(), key.expert) != ahead_.end()) continue;
    if (ahead_.size() == ahead_.capacity()) break;
    if (deps_.slots != nullptr && deps_.slots->resident(key)) continue;
    if (deps_.store.TryAcquire(key)) continue;
    ahead_.push_back(key.expert);
  }
  if (ahead_.empty()) return;
  deps_.store.LookAhead(next.layer, ahead_);
  // Asking a daemon for its counters takes a message there and back.
  constexpr uint32_t kLayersPerJudgement = 32;
  if (++ahead_layer_count_ % kLayersPerJudgement != 0) return;
  const StoreStats stats = deps_.store.stats();
  gate_.Judge(stats.lookahead_read_count, stats.lookahead_used_count);
}

}  // namespace hearth
