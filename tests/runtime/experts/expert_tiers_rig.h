// A rig for the tests of the tiers: a small model's layers with the outputs they must have, a RAM
// tier whose arrivals a test stages, and slots that nobody may read unless they hold an expert:
// those are full of 0xFF, and so are the bytes of a RAM lease that has been given back. Both
// compute to NaN.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/prng.h"
#include "runtime/experts/expert_tiers.h"
#include "runtime/experts/host_card.h"
#include "runtime/experts/host_slots.h"
#include "tests/support/staged_store.h"
#include "tests/support/store_pool.h"
#include "tests/support/tiny_arena.h"
#include "tests/support/yield_for.h"

namespace hearth {

inline constexpr uint32_t kRanks = 4;
inline constexpr uint32_t kExperts = 20;
inline constexpr uint32_t kHidden = 64;
inline constexpr uint32_t kPromptRows = 40;
inline constexpr uint64_t kDecodedBytesMax = 200 << 10;  // 8 experts in fp32: of a layer's 20

inline TinyOptions ModelOptions() {
  TinyOptions options = TinyOptions::For(TinyExperts::kModelOptNvfp4);
  options.expert_count = kExperts;
  options.experts_per_token = kRanks;
  options.hidden = kHidden;
  return options;
}

// Host slots that hold 0xFF from the moment an upload into them begins, count what is uploaded and
// can refuse to copy.
class PoisoningSlots final : public SlotDevice {
 public:
  // `has_card`: a card computes, and the pool cannot read the slots.
  PoisoningSlots(std::span<const SlotPoolShape> pools, const HostSlotsOptions& options,
                 bool has_card)
      : host_(*HostSlots::Create(pools, options)), has_card_(has_card) {}
  void Poison(SlotRef slot) const {
    const std::span<const std::byte> bytes = host_->HostView(slot);
    std::fill_n(const_cast<std::byte*>(bytes.data()), bytes.size(), std::byte{0xFF});
  }
  const HostSlots& host() const { return *host_; }
  bool fails = false;
  bool keeps_silent = false;  // uploads are not answered before Answer()
  uint64_t uploaded_bytes = 0;
  uint64_t upload_count = 0;

  std::string_view name() const override { return "poisoned host memory"; }
  bool computes() const override { return has_card_; }
  void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
              uint32_t index) override {
    uploaded_bytes += from.size();
    ++upload_count;
    Poison(slot);
    if (fails) return sink.OnUploaded(index, absl::DataLossError("card: the copy failed"));
    if (keeps_silent) {
      unanswered_.push_back({&sink, index});
      return;
    }
    host_->Upload(slot, from, sink, index);
  }
  void Answer() {
    for (const auto& [sink, index] : std::exchange(unanswered_, {})) {
      sink->OnUploaded(index, absl::CancelledError("card: too late"));
    }
  }
  absl::StatusOr<std::span<const std::byte>> Read(SlotRef slot, uint64_t bytes) override {
    return host_->Read(slot, bytes);
  }
  std::span<const std::byte> HostView(SlotRef slot) const override {
    return has_card_ ? std::span<const std::byte>() : host_->HostView(slot);
  }
  uint64_t bytes() const override { return host_->bytes(); }

 private:
  std::unique_ptr<HostSlots> host_;
  const bool has_card_;
  std::vector<std::pair<UploadSink*, uint32_t>> unanswered_;
};

// One layer of one pass, with the output it must have.
struct LayerCase {
  LayerId layer;
  uint32_t rows = 0;
  std::vector<float> x;
  std::vector<uint32_t> routes;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum16;
  std::vector<float> expected, expected_reference;
  RouteInput Routes() const {
    return {.expert = routes, .rows = rows, .ranks = kRanks, .expert_count = kExperts};
  }
  ExpertRows Input(bool reference) const {
    ExpertRows input;
    input.x = x.data();
    input.rows = rows;
    if (!reference) {
      input.quantized = {.q = q.data(),
                         .scale = scale.data(),
                         .sum16 = sum16.data(),
                         .rows = rows,
                         .cols = kHidden};
    }
    return input;
  }
};

// Experts of a layer are not equally popular, and which are popular changes as time goes on.
inline LayerCase MakeLayer(LayerId layer, uint32_t rows, uint32_t pass, const CpuKernels& kernels) {
  Prng prng(pass * 131 + layer.value);
  LayerCase c;
  c.layer = layer;
  c.rows = rows;
  for (size_t i = 0; i < size_t{rows} * kHidden; ++i) {
    c.x.push_back(static_cast<float>(prng.Uniform() * 2 - 1));
  }
  for (uint32_t r = 0; r < rows; ++r) {
    while (c.routes.size() < size_t{r + 1} * kRanks) {
      const double u = prng.Uniform();
      const auto rank = static_cast<uint32_t>(u * u * kExperts);
      const uint32_t expert = (rank + layer.value * 3 + pass / 15 * 7) % kExperts;
      const auto row_begin = c.routes.begin() + r * kRanks;
      if (std::find(row_begin, c.routes.end(), expert) == c.routes.end()) {
        c.routes.push_back(expert);
      }
    }
  }
  const size_t blocks = ActivationBlocks(kHidden);
  c.q.resize(rows * blocks * kActivationBlockValues);
  c.scale.resize(rows * blocks);
  c.sum16.resize(rows * blocks * 2);
  kernels.quantize_rows.fn({.x = c.x.data(),
                            .x_stride = kHidden,
                            .rows = rows,
                            .cols = kHidden,
                            .q = c.q.data(),
                            .scale = c.scale.data(),
                            .sum16 = c.sum16.data()});
  return c;
}

struct Pass {
  TrafficKind kind = TrafficKind::kWindow;
  std::vector<LayerCase> layers;
};

struct World {  // what all tests share: experts, passes and their outputs
  World() : arena(ModelOptions()), kernels(SelectCpuKernels(DetectCpuFeatures())), team(1) {
    auto pool =
        StorePool::Create(arena.store(), kernels, team, {.rows_max = kPromptRows, .ranks = kRanks});
    HEARTH_CHECK(pool.ok());
    WindowPlan plan;
    for (uint32_t p = 0; p < 45; ++p) {
      const bool prompt = p % 15 == 0;
      passes.emplace_back().kind = prompt ? TrafficKind::kPrompt : TrafficKind::kWindow;
      for (uint32_t l = 0; l < arena.store().layer_count(); ++l) {
        LayerCase c = MakeLayer(LayerId(l), prompt ? kPromptRows : p % 9 + 1, p, kernels);
        GroupRoutes(c.Routes(), plan);
        c.expected.resize(c.routes.size() * kHidden);
        c.expected_reference.resize(c.expected.size());
        HEARTH_CHECK((*pool)->Run(c.layer, plan, c.Input(false), c.expected).ok());
        HEARTH_CHECK((*pool)->Run(c.layer, plan, c.Input(true), c.expected_reference).ok());
        passes.back().layers.push_back(std::move(c));
      }
    }
  }
  TinyArena arena;
  const CpuKernels& kernels;
  WorkerTeam team;
  std::vector<Pass> passes;
};

inline const World& TheWorld() {
  static World* const world = new World;
  return *world;
}
inline World& MutableWorld() { return const_cast<World&>(TheWorld()); }

// A card that fails where the test says so.
class FaultyCard final : public ExpertCard {
 public:
  explicit FaultyCard(HostCard& card) : card_(card) {}
  enum class Step : uint8_t { kNone, kBegin, kStream, kFinish, kRetire };
  Step fails_at = Step::kNone;
  bool computes = true;
  uint32_t begin_count = 0;
  uint32_t arrive_count = 0;
  uint64_t stream_count = 0;  // experts

  std::string_view name() const override { return card_.name(); }
  bool Computes(LayerId layer, const ExpertRows& rows) const override {
    return computes && card_.Computes(layer, rows);
  }
  absl::Status Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& rows,
                     std::span<const CardExpert> experts) override {
    if (fails_at == Step::kBegin) return Error();
    ++begin_count;
    begun_ = true;
    return card_.Begin(layer, plan, rows, experts);
  }
  bool FollowsRoutes() const override { return computes && card_.FollowsRoutes(); }
  std::span<const EntryClaim> Claims(LayerId layer, std::span<const uint32_t> expert) override {
    return card_.Claims(layer, expert);
  }
  bool TakesLate() const override { return card_.TakesLate(); }
  void SetSlot(ExpertKey key, SlotRef slot) override { card_.SetSlot(key, slot); }
  void SetHostBytes(ExpertKey key, std::span<const std::byte> bytes) override {
    card_.SetHostBytes(key, bytes);
  }
  void SetStreamRule(const StreamRule& rule) override { card_.SetStreamRule(rule); }
  bool Streams(std::span<const std::byte> bytes) const override { return card_.Streams(bytes); }
  absl::Status Stream(std::span<const StreamedExpert> experts) override {
    stream_count += experts.size();
    const absl::Status status = card_.Stream(experts);
    return fails_at == Step::kStream ? Error() : status;
  }
  void Arrive(const CardExpert& expert) override {
    ++arrive_count;
    card_.Arrive(expert);
  }
  absl::Status Finish() override {
    if (!begun_) return absl::OkStatus();
    const absl::Status status = card_.Finish();
    return fails_at == Step::kFinish ? Error() : status;
  }
  absl::StatusOr<CardTimes> Retire() override {
    if (!std::exchange(begun_, false)) return CardTimes{};
    const absl::StatusOr<CardTimes> times = card_.Retire();
    if (fails_at == Step::kRetire) return Error();
    return times;
  }

 private:
  static absl::Status Error() { return absl::InternalError("card: it is on fire"); }
  HostCard& card_;
  bool begun_ = false;
};

struct RigOptions {
  SlotBudget budget;
  StagedStoreOptions store;
  double pcie_share = -1;
  uint64_t pcie_window_bytes_max = UINT64_MAX;
  uint32_t spare_count = 8;
  uint32_t worker_count = 1;
  uint32_t copy_delay_us_max = 0;
  bool reference = false;
  bool has_card = false;
  bool card_streams = false;
  bool card_follows = false;  // the routes of windows, by its own table
  bool card_takes_late = true;
  std::function<void(LayerId)> before_card_layer = nullptr;  // on the card's thread
  int64_t upload_wait_ns = 60'000'000'000;
};

class Rig {
 public:
  explicit Rig(const RigOptions& options)
      : options_(options),
        store(MutableWorld().arena.store(), options.store),
        team_(options.worker_count),
        reader_prng_(7) {
    std::vector<ExpertLayout> layouts;
    for (uint32_t l = 0; l < store.layer_count(); ++l) layouts.push_back(store.layout(LayerId(l)));
    auto pool = ExpertPool::Create(
        {.layouts = layouts,
         .expert_count = kExperts,
         .kernels = TheWorld().kernels,
         .team = team_,
         .clock = clock_},
        {.rows_max = kPromptRows, .ranks = kRanks, .decoded_bytes_max = kDecodedBytesMax * 3});
    HEARTH_CHECK(pool.ok());
    pool_ = *std::move(pool);
    if (options.budget.slot_count != 0 || options.budget.share != 0) {
      slots = TheWorld().arena.MakeSlots(options.budget, options.spare_count);
      device = std::make_unique<PoisoningSlots>(
          slots->pools(), HostSlotsOptions{.before_copy = [this] { DelayCopy(); }},
          options.has_card);
      PoisonFreeSlots();
    }
    if (options.has_card) {
      host_card = *HostCard::Create({.layouts = layouts,
                                     .expert_count = kExperts,
                                     .kernels = TheWorld().kernels,
                                     .device = device->host(),
                                     .clock = clock_},
                                    {.rows_max = kPromptRows,
                                     .ranks = kRanks,
                                     .streams = options.card_streams,
                                     .takes_late = options.card_takes_late,
                                     .before_layer = options.before_card_layer});
      card = std::make_unique<FaultyCard>(*host_card);
    }
    tiers = std::make_unique<ExpertTiers>(
        ExpertTiers::Deps{.store = store,
                          .pool = *pool_,
                          .clock = clock_,
                          .slots = slots.get(),
                          .device = device.get(),
                          .card = card.get()},
        ExpertTiersOptions{.rows_max = kPromptRows,
                           .ranks = kRanks,
                           .pcie_share = options.pcie_share,
                           .pcie_window_bytes_max = options.pcie_window_bytes_max,
                           .upload_wait_ns = options.upload_wait_ns});
    output_.resize(size_t{kPromptRows} * kRanks * kHidden);
    expected_layers_.resize(store.layer_count());
  }

  // What a backend does before a pass's first layer.
  void BeginPass(TrafficKind kind) {
    if (!options_.card_follows || !host_card->AwaitIdle()) return;
    kind == TrafficKind::kWindow ? host_card->BeginWindow() : host_card->EndWindow();
  }
  absl::Status Run(const LayerCase& c, TrafficKind kind) {
    std::ranges::fill(output_, -1.0f);
    if (host_card != nullptr && host_card->AwaitIdle()) {
      std::ranges::fill(host_card->output(), -2.0f);
    }
    ExpertRows input = c.Input(options_.reference);
    input.arrival = arrival;
    const absl::Status status = tiers->RunLayer(c.layer, c.Routes(), input, kind, output_, nullptr);
    tiers->EndLayer();
    return status;
  }
  // With a card the outputs are its own where it says so, as the backend combines them.
  bool OutputIsRight(const LayerCase& c) const {
    const std::vector<float>& expected = options_.reference ? c.expected_reference : c.expected;
    const bool uses_card = host_card != nullptr && !options_.reference && card->computes;
    if (uses_card && !host_card->AwaitIdle()) return false;
    for (size_t entry = 0; entry * kHidden < expected.size(); ++entry) {
      const bool on_card = uses_card && host_card->on_card()[entry] != 0;
      const float* const got = on_card ? host_card->output().data() : output_.data();
      const size_t begin = entry * kHidden;
      if (!std::equal(got + begin, got + begin + kHidden, expected.begin() + begin)) return false;
      if (on_card && output_[begin] != -1.0f) return false;  // nobody computes it twice
      if (uses_card && !on_card && host_card->output()[begin] != -2.0f) return false;
    }
    return true;
  }
  // The whole pass, with everything that can be said about it while it goes on.
  void RunChecked(const Pass& pass) {
    const uint64_t uploaded = device == nullptr ? 0 : device->uploaded_bytes;
    BeginPass(pass.kind);
    for (const LayerCase& c : pass.layers) {
      std::vector<uint8_t> resident(kExperts);
      for (uint32_t e = 0; e < kExperts && slots != nullptr; ++e) {
        const ExpertKey key{c.layer, ExpertId(e)};
        const uint64_t entry = host_card == nullptr ? 0 : host_card->entry(key);
        const bool in_table = entry != 0 && (entry & kFromAfar) == 0;
        const bool follows = host_card != nullptr && card->FollowsRoutes();
        resident[e] = (follows ? in_table : slots->resident(key)) ? 1 : 0;
      }
      const absl::Status status = Run(c, pass.kind);
      ASSERT_TRUE(status.ok()) << status;
      PoisonFreeSlots();  // the card may still be at work: it reads none of these
      ASSERT_TRUE(OutputIsRight(c)) << "layer " << c.layer.value;
      CheckServices(c.layer, resident);
    }
    tiers->EndWindow(pass.layers.front().rows);
    PoisonFreeSlots();
    if (device != nullptr) {
      EXPECT_LE(device->uploaded_bytes - uploaded, options_.pcie_window_bytes_max);
    }
    CheckLeases();
  }
  void CheckLedger() const {
    const std::span<const LedgerCounts> layers = tiers->ledger().layers();
    LedgerCounts sum;
    for (uint32_t l = 0; l < layers.size(); ++l) {
      sum += layers[l];
      for (uint32_t s = 0; s < kServiceCount; ++s) {
        const ServiceTotals& got = layers[l].services[s];
        const ServiceTotals& expected = expected_layers_[l].services[s];
        EXPECT_EQ(got.distinct, expected.distinct) << "layer " << l << " service " << s;
        EXPECT_EQ(got.entries, expected.entries) << "layer " << l << " service " << s;
        EXPECT_EQ(got.bytes, got.distinct * store.layout(LayerId(l)).blob_bytes());
        EXPECT_GE(got.ns, 0);
        EXPECT_LT(got.ns, int64_t{300'000'000'000});
      }
      EXPECT_EQ(layers[l].passes, expected_layers_[l].passes);
    }
    const LedgerCounts total = tiers->ledger().total();
    EXPECT_EQ(total.services, sum.services);
    EXPECT_EQ(total.passes, sum.passes);
  }
  uint64_t distinct(Service service) const { return tiers->ledger().total().of(service).distinct; }

 private:
  void CheckServices(LayerId layer, const std::vector<uint8_t>& resident) {
    uint32_t misses = 0, uploads = 0;
    for (const PlannedExpert& planned : tiers->plan().experts) {
      const bool in_ram = store.in_ram({layer, planned.expert});
      const bool in_vram = resident[planned.expert.value] != 0;
      EXPECT_EQ(planned.service == Service::kVram, in_vram);
      EXPECT_EQ(planned.service == Service::kSsd, !in_vram && !in_ram);
      misses += !in_vram && in_ram ? 1 : 0;
      uploads += planned.service == Service::kPcie ? 1 : 0;
      ServiceTotals& expected = expected_layers_[layer.value].of(planned.service);
      ++expected.distinct;
      expected.entries += planned.entry_count;
    }
    ++expected_layers_[layer.value].passes;
    const double share = options_.pcie_share < 0 ? 1 : options_.pcie_share;
    EXPECT_LE(uploads, share * misses + 1e-9);
  }
  // Readers of their own: what they hold keeps its place and its bytes for some windows.
  void CheckLeases() {
    if (slots == nullptr) return;
    for (Reader& reader : readers_) {
      if (!reader.lease.valid()) continue;
      EXPECT_EQ(slots->generation(reader.lease.ref()), reader.generation);
      const std::span<const std::byte> truth = store.truth(reader.key);
      EXPECT_TRUE(std::ranges::equal(
          device->host().HostView(reader.lease.ref()).first(truth.size()), truth));
    }
    Reader& reader = readers_[window_count_++ % std::size(readers_)];
    reader.lease = SlotLease();
    for (uint32_t tries = 0; tries < 10 && !reader.lease.valid(); ++tries) {
      reader.key = {LayerId(static_cast<uint32_t>(reader_prng_.Below(store.layer_count()))),
                    ExpertId(static_cast<uint32_t>(reader_prng_.Below(kExperts)))};
      reader.lease = slots->Acquire(reader.key);
    }
    if (reader.lease.valid()) reader.generation = slots->generation(reader.lease.ref());
  }
  void PoisonFreeSlots() const {
    if (slots == nullptr) return;
    for (uint32_t p = 0; p < slots->pools().size(); ++p) {
      for (uint32_t s = 0; s < slots->pools()[p].total_count(); ++s) {
        const SlotRef ref{.pool = p, .slot = SlotId(s)};
        if (slots->state(ref) == SlotState::kFree) device->Poison(ref);
      }
    }
  }
  void DelayCopy() {  // on the copy thread
    if (options_.copy_delay_us_max == 0) return;
    const uint64_t delay_us = SplitMix64(copy_count_++) % options_.copy_delay_us_max;
    YieldFor(static_cast<int64_t>(delay_us));
  }

  const RigOptions options_;

 public:
  StagedStore store;
  std::unique_ptr<SlotCache> slots;
  std::unique_ptr<PoisoningSlots> device;
  std::unique_ptr<HostCard> host_card;
  std::unique_ptr<FaultyCard> card;  // what the tiers see of it
  RowsArrival* arrival = nullptr;    // of all rows; null: they are there

 private:
  struct Reader {
    ExpertKey key;
    SlotLease lease;
    uint64_t generation = 0;
  };
  WorkerTeam team_;
  SteadyClock clock_;
  std::unique_ptr<ExpertPool> pool_;
  std::vector<float> output_;
  std::vector<LedgerCounts> expected_layers_;
  Reader readers_[2];
  uint32_t window_count_ = 0;
  Prng reader_prng_;
  uint64_t copy_count_ = 0;  // the copy thread's

 public:
  std::unique_ptr<ExpertTiers> tiers;  // last: uses all of the above
};

// The windows among passes [begin, end), with nothing said about them but that they succeed.
inline void RunWindows(Rig& rig, size_t begin, size_t end) {
  const std::vector<Pass>& passes = TheWorld().passes;
  for (size_t p = begin; p < end; ++p) {
    if (passes[p].kind == TrafficKind::kPrompt) continue;
    rig.BeginPass(passes[p].kind);
    for (const LayerCase& c : passes[p].layers) {
      ASSERT_TRUE(rig.Run(c, passes[p].kind).ok());
    }
    rig.tiers->EndWindow(1);
  }
}

inline void RunAll(Rig& rig) {
  for (size_t p = 0; p < TheWorld().passes.size(); ++p) {
    SCOPED_TRACE(testing::Message() << "pass " << p);
    rig.RunChecked(TheWorld().passes[p]);
    if (testing::Test::HasFatalFailure()) return;
  }
  rig.CheckLedger();
  EXPECT_LE(rig.store.lease_count(), 8);  // of promotions under way, at most
}

}  // namespace hearth
