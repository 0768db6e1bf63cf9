#include "runtime/experts/expert_tiers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/experts/bounded_wait.h"

namespace hearth {
namespace {

// Fills proposed at once: each proposal looks at every expert, so that few at a time would make
// filling a large cache slow.
constexpr uint32_t kFillsPerProposal = 512;

}  // namespace

ExpertTiers::ExpertTiers(const Deps& deps, const ExpertTiersOptions& options)
    : deps_(deps),
      options_(options),
      ledger_(deps.store.layer_count()),
      costs_(options.costs),
      prompt_costs_(options.costs) {
  HEARTH_CHECK((deps.slots == nullptr) == (deps.device == nullptr));
  HEARTH_CHECK((deps.card != nullptr) == (deps.device != nullptr && deps.device->computes()));
  pcie_bytes_left_ = options.pcie_window_bytes_max;
  const uint32_t count = deps.store.expert_count();
  plan_.Reserve(options.rows_max, options.ranks, count);
  items_.resize(count);
  weights_.resize(count);
  sightings_.reserve(count);
  residency_.reserve(count);
  heat_.reserve(count);
  wanted_.reserve(count);
  fetched_.reserve(count);
  fetched_index_.reserve(count);
  ahead_.reserve(count);
  if (deps.slots == nullptr) return;
  host_reads_ = HostReadsSlots();
  card_experts_.reserve(count);
  streamed_.reserve(count);
  card_leases_.reserve(count);
  streamed_leases_.reserve(count);
  card_uploads_.reserve(count);
  fill_.resize(std::max(options.promotions_max, kFillsPerProposal));
  promotions_ = std::make_unique<Promotions>(
      Promotions::Deps{
          .slots = *deps.slots, .device = *deps.device, .store = deps.store, .clock = deps.clock},
      options.promotions_max, options.upload_wait_ns);
  if (deps_.card == nullptr) return;
  table_ = std::make_unique<CardTable>(
      CardTable::Deps{.store = deps_.store, .slots = *deps_.slots, .card = *deps_.card},
      CardTable::Options{.pcie_share = options.pcie_share,
                         .pcie_window_bytes_max = options.pcie_window_bytes_max,
                         .link_expert_ns = options.costs.pcie_expert_ns});
}

EntryClaim ExpertTiers::ClaimOf(size_t i) const {
  if (claims_.empty()) return EntryClaim::kHost;
  const RouteEntry& first = plan_.entries[plan_.experts[i].entry_begin];
  return claims_[size_t{first.row} * options_.ranks + first.rank];
}

// The device and the card use what is gone afterwards unless they have answered.
ExpertTiers::~ExpertTiers() {
  EndLayer();
  (void)RetireCard();
  HEARTH_CHECK(AwaitFor(deps_.clock, options_.upload_wait_ns,
                        [&] { return uploads_left_.load(std::memory_order_acquire) == 0; }));
}

bool ExpertTiers::HostReadsSlots() const {
  for (uint32_t p = 0; p < deps_.slots->pools().size(); ++p) {
    if (deps_.slots->pools()[p].total_count() == 0) continue;
    return !deps_.device->HostView({.pool = p, .slot = SlotId(0)}).empty();
  }
  return true;  // there are none
}

ExpertTiers::Way ExpertTiers::WayOf(LayerId layer, const ExpertRows& input) const {
  if (deps_.pool.DecodesFirst(layer, input)) return Way::kDecode;
  return deps_.card != nullptr && deps_.card->Computes(layer, input) ? Way::kCard : Way::kPool;
}

absl::Status ExpertTiers::FillSlots(const std::function<void(uint64_t, uint64_t)>& progress) {
  if (promotions_ == nullptr) return absl::OkStatus();
  uint64_t total = 0;
  for (const SlotPoolShape& pool : deps_.slots->pools()) total += pool.slot_count * pool.slot_bytes;
  for (uint64_t done = 0;;) {
    const size_t count = deps_.slots->ProposeFill(fill_);
    const uint64_t landed = deps_.slots->stats().swap_count;
    bool started = false;
    for (size_t i = 0; i < count; ++i) {
      if (deps_.slots->Heat(fill_[i].in) <= 0) break;  // nothing is known of it: let traffic decide
      if (!promotions_->has_room()) HEARTH_RETURN_IF_ERROR(promotions_->Drain());
      HEARTH_ASSIGN_OR_RETURN(ExpertLease lease, deps_.store.Acquire(fill_[i].in));
      done += deps_.store.layout(fill_[i].in.layer).stride_bytes();
      if (!promotions_->Start(fill_[i], std::move(lease))) break;
      started = true;
      if (progress) progress(std::min(done, total), total);
    }
    HEARTH_RETURN_IF_ERROR(promotions_->Drain());
    if (!started) return absl::OkStatus();
    if (deps_.slots->stats().swap_count == landed) {
      return absl::InternalError(absl::StrCat("slots: no expert could be copied into ",
                                              ToAbsl(deps_.device->name()),
                                              "; run without --slots"));
    }
  }
}

void ExpertTiers::set_trace(WindowTrace* trace) {
  deps_.pool.set_trace(trace);
  if (promotions_ != nullptr) promotions_->set_trace(trace);
  trace_ = trace;
}

void ExpertTiers::Observe(LayerId layer, TrafficKind kind) {
  sightings_.clear();
  for (const PlannedExpert& planned : plan_.experts) {
    sightings_.push_back({.expert = planned.expert, .entry_count = planned.entry_count});
  }
  const LayerTraffic traffic{.layer = layer, .experts = sightings_, .kind = kind};
  window_has_prompt_ |= kind == TrafficKind::kPrompt;
  if (deps_.slots != nullptr) deps_.slots->Observe(traffic);
  deps_.store.Observe(traffic);
}

// Leases are taken before services are chosen: what is in RAM now stays there for the layer.
void ExpertTiers::FindExperts(LayerId layer) {
  residency_.clear();
  heat_.clear();
  wanted_.assign(plan_.experts.size(), 0);
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    const ExpertKey key{layer, plan_.experts[i].expert};
    Item& item = items_[i];
    item.status = absl::OkStatus();
    item.asked_ns = item.arrived_ns = 0;
    heat_.push_back(deps_.slots == nullptr ? 0 : deps_.slots->Heat(key));
    // What the card has claimed stays in place without a lease.
    const bool is_claimed = ClaimOf(i) != EntryClaim::kHost;
    if (UsesSlots() && claims_.empty()) item.slot = deps_.slots->Acquire(key);
    if (is_claimed || item.slot.valid()) {
      residency_.push_back(Residency::kVram);
      continue;
    }
    std::optional<ExpertLease> lease = deps_.store.TryAcquire(key);
    residency_.push_back(lease ? Residency::kRam : Residency::kNvme);
    if (lease) item.ram = *std::move(lease);
  }
}

void ExpertTiers::ProposeSwaps(TrafficKind kind) {
  if (!UsesSlots() || kind != TrafficKind::kWindow) return;
  for (const Swap& swap : deps_.slots->Propose()) {
    const auto at =
        std::lower_bound(plan_.experts.begin(), plan_.experts.end(), swap.in.expert,
                         [](const PlannedExpert& p, ExpertId expert) { return p.expert < expert; });
    HEARTH_CHECK(at != plan_.experts.end() && at->expert == swap.in.expert);
    const auto i = static_cast<size_t>(at - plan_.experts.begin());
    wanted_[i] = 1;
    items_[i].swap = swap;
  }
}

// A prompt's experts have many rows each, which the CPU computes one by one: those with most go to
// the card first, and as many as that pays for.
void ExpertTiers::Choose(LayerId layer, TrafficKind kind) {
  const bool is_prompt = kind == TrafficKind::kPrompt;
  const bool takes_more = claims_.empty() || deps_.card->TakesLate();
  const bool streams =
      way_ == Way::kCard && takes_more &&
      std::ranges::any_of(std::span(items_).first(plan_.experts.size()), [&](const Item& item) {
        return !item.ram.bytes().empty() && deps_.card->Streams(item.ram.bytes());
      });
  ServiceLimits limits{.pcie_share = options_.pcie_share,
                       .pcie_bytes_left = pcie_bytes_left_,
                       .blob_bytes = deps_.store.layout(layer).stride_bytes(),
                       .uploads_max = 0};
  if (UsesSlots() && takes_more) {
    limits.uploads_max = options_.promotions_max;
    limits.probes_left = pcie_bytes_left_ == options_.pcie_window_bytes_max ? 1 : 0;
    // Uploading to what the CPU has to compute anyway only pays when somebody asks for it.
    if (limits.pcie_share < 0 && way_ != Way::kCard) limits.pcie_share = 0;
  }
  if (streams) {
    limits.uploads_max = deps_.store.expert_count();
    if (is_prompt) {
      limits.pcie_bytes_left = UINT64_MAX;  // nobody's slot is taken, and nobody waits for a token
      limits.uploads_first = true;
      for (size_t i = 0; i < heat_.size(); ++i) {
        heat_[i] = static_cast<float>(plan_.experts[i].entry_count);
      }
    }
  }
  ServiceCosts& costs = costs_at_hand();
  if (costs.cpu_expert_ns <= 0) {  // what windows have shown is better than nothing
    costs.cpu_expert_ns = costs_.cpu_expert_ns;
    costs.cpu_row_ns = costs_.cpu_row_ns;
  }
  if (costs.pcie_expert_ns <= 0) costs.pcie_expert_ns = costs_.pcie_expert_ns;
  ChooseServices(residency_, {.heat = heat_, .wanted = wanted_}, limits, costs, plan_);
  uint32_t slots_left = options_.promotions_max;
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    PlannedExpert& planned = plan_.experts[i];
    if (planned.service != Service::kPcie) continue;
    if (!PlaceUpload({layer, planned.expert}, i, slots_left > 0)) {
      planned.service = Service::kCpu;
      continue;
    }
    const bool takes_slot = items_[i].upload.valid();
    slots_left -= takes_slot ? 1 : 0;
    if (takes_slot || !is_prompt) pcie_bytes_left_ -= std::min(pcie_bytes_left_, limits.blob_bytes);
  }
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    if (ClaimOf(i) != EntryClaim::kStreamed) continue;
    plan_.experts[i].service = Service::kPcie;
    pcie_bytes_left_ -= std::min(pcie_bytes_left_, limits.blob_bytes);
  }
}

// What will stay gets a slot, and what a card does not stream; false: there is none.
bool ExpertTiers::PlaceUpload(ExpertKey key, size_t i, bool may_take_slot) {
  const bool streams = way_ == Way::kCard && deps_.card->Streams(items_[i].ram.bytes());
  if (!may_take_slot || (streams && wanted_[i] == 0)) return streams;
  const absl::StatusOr<SlotRef> slot = deps_.slots->BeginFill(key);
  if (slot.ok()) items_[i].upload = *slot;
  return slot.ok() || streams;
}

void ExpertTiers::StartArrivals(LayerId layer) {
  const int64_t now_ns = deps_.clock.NowNs();
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    const bool is_streamed =
        plan_.experts[i].service == Service::kPcie && !items_[i].upload.valid();  // by the card
    if (ArrivesLate(plan_.experts[i].service) && !is_streamed) items_[i].asked_ns = now_ns;
  }
  if (!fetched_.empty()) deps_.store.Fetch(layer, fetched_, *this);
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    if (!items_[i].upload.valid()) continue;
    deps_.device->Upload(items_[i].upload, items_[i].ram.bytes(), *this, static_cast<uint32_t>(i));
  }
}

void ExpertTiers::OnArrival(uint32_t index, absl::StatusOr<ExpertLease> lease) {
  const uint32_t i = fetched_index_[index];
  Item& item = items_[i];
  item.arrived_ns = deps_.clock.NowNs();
  if (lease.ok()) {
    item.ram = *std::move(lease);
  } else {
    item.status = lease.status();
  }
  deps_.pool.Arrive(i, item.ram.bytes().data());
}

void ExpertTiers::OnUploaded(uint32_t index, const absl::Status& status) {
  Item& item = items_[index];
  item.arrived_ns = deps_.clock.NowNs();
  item.status = status;
  if (way_ == Way::kPool) {
    deps_.pool.Arrive(index, status.ok() ? deps_.device->HostView(item.upload).data() : nullptr);
    return;
  }
  if (way_ == Way::kCard && status.ok()) deps_.card->Arrive({.index = index, .slot = item.upload});
  // Ordering: what was written of the item, and given to the card, comes before AwaitUploads()
  // returns. The layer may be over after this.
  uploads_left_.fetch_sub(1, std::memory_order_release);
}

absl::Status ExpertTiers::AwaitUploads(LayerId layer) {
  const auto none_left = [&] { return uploads_left_.load(std::memory_order_acquire) == 0; };
  if (AwaitFor(deps_.clock, options_.upload_wait_ns, none_left)) return absl::OkStatus();
  lost_ = absl::DeadlineExceededError(absl::StrCat(
      "layer ", layer.value, ": ", ToAbsl(deps_.device->name()),
      " has not answered an upload within ", options_.upload_wait_ns / 1'000'000, " ms; restart"));
  return lost_;
}

void ExpertTiers::OnExpertDone(uint32_t index) {
  Item& item = items_[index];
  item.slot = {};
  // Blocks go back at once: a small RAM tier needs them for what is still to be read.
  if (wanted_[index] == 0) item.ram = {};
}

// The stored weights of plan.experts[i] for decoding, waiting for them where they arrive late.
absl::StatusOr<const std::byte*> ExpertTiers::AwaitDecodable(LayerId layer, size_t i) {
  Item& item = items_[i];
  switch (plan_.experts[i].service) {
    case Service::kVram: {
      HEARTH_ASSIGN_OR_RETURN(
          const std::span<const std::byte> bytes,
          deps_.device->Read(item.slot.ref(), deps_.store.layout(layer).blob_bytes()));
      return bytes.data();
    }
    case Service::kCpu:
      return item.ram.bytes().data();
    case Service::kSsd: {
      item.asked_ns = deps_.clock.NowNs();
      HEARTH_ASSIGN_OR_RETURN(item.ram, deps_.store.Acquire({layer, plan_.experts[i].expert}));
      item.arrived_ns = deps_.clock.NowNs();
      return item.ram.bytes().data();
    }
    case Service::kPcie:
      break;
  }
  item.asked_ns = deps_.clock.NowNs();
  uploads_left_.store(1, std::memory_order_relaxed);
  deps_.device->Upload(item.upload, item.ram.bytes(), *this, static_cast<uint32_t>(i));
  HEARTH_RETURN_IF_ERROR(AwaitUploads(layer));
  HEARTH_RETURN_IF_ERROR(item.status);
  return host_reads_ ? deps_.device->HostView(item.upload).data() : item.ram.bytes().data();
}

// Where the weights of the plan are; those that arrive late are asked for in StartArrivals().
void ExpertTiers::PlaceWeights(LayerId layer) {
  fetched_.clear();
  fetched_index_.clear();
  card_experts_.clear();
  streamed_.clear();
  has_pool_work_ = false;
  uint32_t uploads = 0;
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    const ExpertKey key{layer, plan_.experts[i].expert};
    const auto index = static_cast<uint32_t>(i);
    weights_[i] = {.blob = nullptr, .node = deps_.store.NodeOf(key)};
    switch (plan_.experts[i].service) {
      case Service::kVram:
        if (way_ == Way::kCard) {
          weights_[i].elsewhere = true;
          if (claims_.empty()) {
            card_experts_.push_back({.index = index, .slot = items_[i].slot.ref()});
          }
        } else {
          weights_[i].blob = deps_.device->HostView(items_[i].slot.ref()).data();
        }
        break;
      case Service::kCpu:
        weights_[i].blob = items_[i].ram.bytes().data();
        break;
      case Service::kSsd:
        fetched_.push_back(key.expert);
        fetched_index_.push_back(index);
        break;
      case Service::kPcie:
        weights_[i].elsewhere = way_ == Way::kCard;
        if (items_[i].upload.valid()) {
          ++uploads;
        } else if (ClaimOf(i) == EntryClaim::kHost) {
          streamed_.push_back({.index = index, .bytes = items_[i].ram.bytes()});
        }
        break;
    }
    has_pool_work_ |= !weights_[i].elsewhere;
  }
  if (way_ == Way::kCard) uploads_left_.store(uploads, std::memory_order_relaxed);
}

absl::Status ExpertTiers::BeginCard(LayerId layer, const ExpertRows& input) {
  card_layer_ = layer;
  absl::Status status = deps_.card->Begin(layer, plan_, input, card_experts_);
  if (status.ok() && !streamed_.empty()) status = deps_.card->Stream(streamed_);
  return status;
}

// The card has its part before the pool begins, and goes on beside it.
absl::Status ExpertTiers::RunPlan(LayerId layer, const ExpertRows& input, std::span<float> output,
                                  const NextLayer* next) {
  const std::span<ExpertWeights> weights = std::span(weights_).first(plan_.experts.size());
  times_ = {};
  pool_ns_ = 0;
  if (way_ == Way::kDecode) {
    HEARTH_RETURN_IF_ERROR(deps_.pool.Decode(
        layer, plan_, [&](size_t i) { return AwaitDecodable(layer, i); },
        [&](size_t i) { OnExpertDone(static_cast<uint32_t>(i)); }, weights));
    if (input.arrival != nullptr) HEARTH_RETURN_IF_ERROR(input.arrival->AwaitRows());
    deps_.pool.Begin(layer, plan_, input, weights, output, nullptr);
    if (next != nullptr) LookAhead(*next);
    times_ = deps_.pool.Finish();
    return absl::OkStatus();
  }
  PlaceWeights(layer);
  absl::Status status = way_ == Way::kCard ? BeginCard(layer, input) : absl::OkStatus();
  if (status.ok() && has_pool_work_ && input.arrival != nullptr) {
    status = input.arrival->AwaitRows();
  }
  if (!status.ok()) {
    uploads_left_.store(0, std::memory_order_relaxed);  // none has begun
    if (way_ == Way::kCard) status.Update(deps_.card->Finish());
    return status;
  }
  const int64_t begin_ns = deps_.clock.NowNs();
  if (has_pool_work_) deps_.pool.Begin(layer, plan_, input, weights, output, this);
  StartArrivals(layer);
  if (next != nullptr) LookAhead(*next);
  if (has_pool_work_) {
    const PassSpan span(trace_, deps_.clock, "CPU's experts", layer);
    times_ = deps_.pool.Finish();
    pool_ns_ = deps_.clock.NowNs() - begin_ns;
  }
  if (way_ == Way::kCard) {
    const PassSpan span(trace_, deps_.clock, "wait for uploads", layer);
    status = AwaitUploads(layer);
    status.Update(deps_.card->Finish());
  }
  status.Update(FirstError());
  return status;
}

absl::Status ExpertTiers::RunLayer(LayerId layer, const RouteInput& routes, const ExpertRows& input,
                                   TrafficKind kind, std::span<float> output,
                                   const NextLayer* next) {
  HEARTH_RETURN_IF_ERROR(lost_);
  EndLayer();
  late_error_.Update(RetireCard());
  if (!late_error_.ok()) return std::exchange(late_error_, absl::OkStatus());
  const int64_t begin_ns = trace_ == nullptr ? 0 : deps_.clock.NowNs();
  GroupRoutes(routes, plan_);
  way_ = WayOf(layer, input);
  claims_ = {};
  if (way_ == Way::kCard) claims_ = deps_.card->Claims(layer, routes.expert);
  if (table_ != nullptr) table_->BeginLayer(layer);
  layer_ = layer;
  kind_ = kind;
  // What the card takes by itself does not depend on what this changes: it can wait.
  const bool bookkeeping_first = claims_.empty();
  if (bookkeeping_first) Observe(layer, kind);
  FindExperts(layer);
  if (bookkeeping_first) ProposeSwaps(kind);
  Choose(layer, kind);
  if (trace_ != nullptr) {
    trace_->Add({.name = "plan",
                 .begin_ns = begin_ns,
                 .end_ns = deps_.clock.NowNs(),
                 .layer = layer,
                 .expert_count = static_cast<uint32_t>(plan_.experts.size()),
                 .row_count = routes.rows});
  }
  const absl::Status status = RunPlan(layer, input, output, next);
  if (!lost_.ok()) return status;  // the device may still use all of it
  card_counts_ = has_succeeded_ = status.ok();
  is_ending_ = true;
  if (bookkeeping_first || !status.ok()) EndLayer();
  return status;
}

void ExpertTiers::EndLayer() {
  if (!std::exchange(is_ending_, false)) return;
  if (!claims_.empty()) {
    Observe(layer_, kind_);
    ProposeSwaps(kind_);
  }
  if (has_succeeded_) Record();
  KeepOrDrop(has_succeeded_);
}

// Slots that the card has read may change hands now. Its time is known only now as well.
absl::Status ExpertTiers::RetireCard() {
  if (!card_layer_.valid()) return absl::OkStatus();
  const absl::StatusOr<CardTimes> times = deps_.card->Retire();
  card_leases_.clear();
  streamed_leases_.clear();
  for (const SlotRef slot : card_uploads_) deps_.slots->Discard(slot);
  card_uploads_.clear();
  const LayerId layer = std::exchange(card_layer_, LayerId());
  HEARTH_RETURN_IF_ERROR(times.status());
  if (!card_counts_) return absl::OkStatus();
  ledger_.AddTime(layer, Service::kVram, times->layer_ns);
  ledger_.AddTime(layer, Service::kPcie, times->stream_ns);
  if (trace_ != nullptr && times->stream_begin_ns != 0) {
    trace_->Add({.name = "stream",
                 .lane = TraceLane::kCopy,
                 .begin_ns = times->stream_begin_ns,
                 .end_ns = times->stream_begin_ns + times->stream_ns,
                 .layer = layer,
                 .expert_count = times->streamed_count,
                 .bytes = times->streamed_count * deps_.store.layout(layer).blob_bytes()});
  }
  if (!claims_.empty() && table_->streams()) {
    table_->Measured({.link_experts = times->streamed_count, .link_ns = times->stream_ns});
  } else {
    UpdateCosts({.pcie_experts = times->streamed_count, .pcie_ns = times->stream_ns},
                costs_at_hand());
  }
  return absl::OkStatus();
}

absl::Status ExpertTiers::FirstError() const {
  for (size_t i = 0; i < plan_.experts.size(); ++i) {
    if (!items_[i].status.ok()) return items_[i].status;
  }
  return absl::OkStatus();
}

}  // namespace hearth
