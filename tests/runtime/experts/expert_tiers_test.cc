// A layer's experts from wherever they are: whatever is in VRAM, uploaded, in RAM or still to be
// read, whatever comes late or not at all, the outputs are those of a pool that has everything at
// hand, bit for bit, and the ledger says who did what. Slots that nobody may read hold 0xFF, and so
// do the bytes of a RAM lease that has been given back: both compute to NaN.
#include "runtime/experts/expert_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/prng.h"
#include "runtime/experts/host_slots.h"
#include "tests/support/allocation_count.h"
#include "tests/support/staged_store.h"
#include "tests/support/store_pool.h"
#include "tests/support/tiny_arena.h"
#include "tests/support/yield_for.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRanks = 4;
constexpr uint32_t kExperts = 20;
constexpr uint32_t kHidden = 64;
constexpr uint32_t kPromptRows = 40;
constexpr uint64_t kDecodedBytesMax = 200 << 10;  // 8 experts in fp32: of a layer's 20

TinyOptions ModelOptions() {
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
  PoisoningSlots(std::span<const SlotPoolShape> pools, const HostSlotsOptions& options)
      : host_(*HostSlots::Create(pools, options)) {}
  void Poison(SlotRef slot) const {
    const std::span<const std::byte> bytes = host_->HostView(slot);
    std::fill_n(const_cast<std::byte*>(bytes.data()), bytes.size(), std::byte{0xFF});
  }
  bool plays_processor = false;
  bool fails = false;
  uint64_t uploaded_bytes = 0;
  uint64_t upload_count = 0;

  std::string_view name() const override { return "poisoned host memory"; }
  bool computes() const override { return plays_processor; }
  void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
              uint32_t index) override {
    uploaded_bytes += from.size();
    ++upload_count;
    Poison(slot);
    if (fails) return sink.OnUploaded(index, absl::DataLossError("card: the copy failed"));
    host_->Upload(slot, from, sink, index);
  }
  absl::Status Download(SlotRef slot, std::span<std::byte> into) override {
    return host_->Download(slot, into);
  }
  std::span<const std::byte> HostView(SlotRef slot) const override { return host_->HostView(slot); }
  uint64_t bytes() const override { return host_->bytes(); }

 private:
  std::unique_ptr<HostSlots> host_;
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
    ExpertRows input{.x = x.data(), .rows = rows};
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
LayerCase MakeLayer(LayerId layer, uint32_t rows, uint32_t pass, const CpuKernels& kernels) {
  Prng prng(pass * 131 + layer.value);
  LayerCase c{.layer = layer, .rows = rows};
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
      passes.push_back({.kind = prompt ? TrafficKind::kPrompt : TrafficKind::kWindow});
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

const World& TheWorld() {
  static World* const world = new World;
  return *world;
}
World& MutableWorld() { return const_cast<World&>(TheWorld()); }

struct RigOptions {
  SlotBudget budget;
  StagedStoreOptions store;
  double pcie_share = -1;
  uint64_t pcie_window_bytes_max = UINT64_MAX;
  uint32_t spare_count = 8;
  uint32_t worker_count = 1;
  uint32_t copy_delay_us_max = 0;
  bool reference = false;
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
          slots->pools(), HostSlotsOptions{.before_copy = [this] { DelayCopy(); }});
      PoisonFreeSlots();
    }
    tiers = std::make_unique<ExpertTiers>(
        ExpertTiers::Deps{.store = store,
                          .pool = *pool_,
                          .clock = clock_,
                          .slots = slots.get(),
                          .device = device.get()},
        ExpertTiersOptions{.rows_max = kPromptRows,
                           .ranks = kRanks,
                           .pcie_share = options.pcie_share,
                           .pcie_window_bytes_max = options.pcie_window_bytes_max});
    output_.resize(size_t{kPromptRows} * kRanks * kHidden);
    expected_layers_.resize(store.layer_count());
  }

  absl::Status Run(const LayerCase& c, TrafficKind kind) {
    std::ranges::fill(output_, -1.0f);
    return tiers->RunLayer(c.layer, c.Routes(), c.Input(options_.reference), kind, output_,
                           nullptr);
  }
  bool OutputIsRight(const LayerCase& c) const {
    const std::vector<float>& expected = options_.reference ? c.expected_reference : c.expected;
    return std::equal(expected.begin(), expected.end(), output_.begin());
  }
  // The whole pass, with everything that can be said about it while it goes on.
  void RunChecked(const Pass& pass) {
    const uint64_t uploaded = device == nullptr ? 0 : device->uploaded_bytes;
    for (const LayerCase& c : pass.layers) {
      std::vector<uint8_t> resident(kExperts);
      for (uint32_t e = 0; e < kExperts && slots != nullptr; ++e) {
        resident[e] = slots->resident({c.layer, ExpertId(e)}) ? 1 : 0;
      }
      const absl::Status status = Run(c, pass.kind);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(OutputIsRight(c)) << "layer " << c.layer.value;
      CheckServices(c.layer, resident);
      PoisonFreeSlots();
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
      EXPECT_TRUE(
          std::ranges::equal(device->HostView(reader.lease.ref()).first(truth.size()), truth));
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

void RunAll(Rig& rig) {
  for (size_t p = 0; p < TheWorld().passes.size(); ++p) {
    SCOPED_TRACE(testing::Message() << "pass " << p);
    rig.RunChecked(TheWorld().passes[p]);
    if (testing::Test::HasFatalFailure()) return;
  }
  rig.CheckLedger();
  EXPECT_LE(rig.store.lease_count(), 8);  // of promotions under way, at most
}

struct PlacementCase {
  SlotBudget budget;
  double pcie_share;
  uint32_t miss_percent;
};

class ExpertTiersPlacement : public testing::TestWithParam<PlacementCase> {};

TEST_P(ExpertTiersPlacement, OutputsAreThoseOfAPoolWithEverythingAtHand) {
  const PlacementCase& c = GetParam();
  Rig rig({.budget = c.budget,
           .store = {.miss_percent = c.miss_percent, .takes_exchange = true},
           .pcie_share = c.pcie_share});
  RunAll(rig);
  // The case is what it says.
  const bool has_slots = rig.slots != nullptr;
  if (c.budget.share != 1) {
    EXPECT_EQ(rig.distinct(Service::kSsd) > 0, c.miss_percent > 0);
  }
  if (c.miss_percent < 100 && c.budget.share != 1) {
    EXPECT_EQ(rig.distinct(Service::kPcie) > 0, has_slots && c.pcie_share > 0);
  }
  if (has_slots) {
    EXPECT_GT(rig.slots->stats().swap_count, 0u);
  }
  for (const StagedStore::Exchanged& exchange : rig.store.exchanges()) {
    EXPECT_TRUE(exchange.right_bytes);
  }
  if (has_slots) {
    EXPECT_EQ(rig.store.exchanges().size(), rig.slots->stats().swap_count);
  }
}

std::vector<PlacementCase> PlacementCases() {
  std::vector<PlacementCase> cases;
  for (const uint32_t miss_percent : {0u, 50u, 100u}) {
    cases.push_back({{}, -1, miss_percent});
    for (const double share : {0.0, 0.3, 1.0}) {
      for (const uint32_t slots : {1u, kRanks - 1, kRanks, kRanks + 1, 2 * kRanks, 40u}) {
        cases.push_back({{.slot_count = slots}, share, miss_percent});
      }
      cases.push_back({{.share = 1}, share, miss_percent});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ExpertTiersPlacement, testing::ValuesIn(PlacementCases()));

// Everything late, in any order, on several workers: with few spares and held slots.
TEST(ExpertTiers, OutputsAreTheSameWithLateCopiesLateReadsAndSeveralWorkers) {
  for (const uint32_t spares : {1u, 3u}) {
    Rig rig({.budget = {.slot_count = 12},
             .store = {.miss_percent = 40, .delay_us_max = 60, .takes_exchange = true},
             .pcie_share = 0.5,
             .spare_count = spares,
             .worker_count = 3,
             .copy_delay_us_max = 150});
    RunAll(rig);
    EXPECT_GT(rig.distinct(Service::kPcie), 0u);
    EXPECT_GT(rig.distinct(Service::kVram), 0u);
    EXPECT_GT(rig.distinct(Service::kSsd), 0u);
  }
}

TEST(ExpertTiers, ReferenceArithmeticIsTheSameOverAllServices) {
  for (const double share : {0.0, 0.4, 1.0}) {
    Rig rig({.budget = {.slot_count = 16},
             .store = {.miss_percent = 30, .takes_exchange = true},
             .pcie_share = share,
             .reference = true});
    RunAll(rig);
    EXPECT_GT(rig.distinct(Service::kVram), 0u);
    EXPECT_GT(rig.distinct(Service::kSsd), 0u);
    EXPECT_EQ(rig.distinct(Service::kPcie) > 0, share > 0);
  }
}

TEST(ExpertTiers, UploadsOfAWindowStayWithinTheirBudget) {
  const ExpertLayout& layout = MutableWorld().arena.store().layout(LayerId(0));
  for (const uint64_t budget :
       {uint64_t{0}, layout.blob_bytes() - 1, 3 * layout.stride_bytes() + 100}) {
    Rig rig({.budget = {.slot_count = 20}, .pcie_share = 1, .pcie_window_bytes_max = budget});
    RunAll(rig);
    EXPECT_EQ(rig.device->upload_count > 0, budget >= layout.blob_bytes());
  }
}

// While no cost is known a window tries one upload; the automatic share goes on from there.
TEST(ExpertTiers, AutomaticShareLearnsWhatAnUploadCosts) {
  Rig rig({.budget = {.slot_count = 8}, .pcie_share = -1});
  rig.device->plays_processor = true;
  for (uint32_t p = 1; p < 4; ++p) rig.RunChecked(TheWorld().passes[p]);
  EXPECT_GT(rig.tiers->costs().pcie_expert_ns, 0);
  EXPECT_GT(rig.distinct(Service::kPcie), 0u);
}

TEST(ExpertTiers, HostThatPlaysACardUploadsNothingUnasked) {
  Rig rig({.budget = {.slot_count = 8}, .pcie_share = -1});
  RunAll(rig);
  EXPECT_EQ(rig.distinct(Service::kPcie), 0u);
  EXPECT_GT(rig.distinct(Service::kVram), 0u);
}

TEST(ExpertTiers, FailedReadFailsThePassAndTheNextOneIsRight) {
  for (const bool reference : {false, true}) {
    for (const bool late : {false, true}) {
      Rig rig({.budget = {.slot_count = 10},
               .store = {.miss_percent = 60, .late = late, .takes_exchange = true},
               .pcie_share = 0.5,
               .reference = reference});
      uint32_t failed_count = 0;
      for (uint32_t p = 0; p < TheWorld().passes.size(); ++p) {
        const Pass& pass = TheWorld().passes[p];
        if (p % 3 == 1) {  // some expert of this layer cannot be read
          const LayerCase& c = pass.layers[p % pass.layers.size()];
          const ExpertKey key{c.layer, ExpertId(c.routes[p % c.routes.size()])};
          rig.store.SetFailing({key});
          const bool needed = !rig.store.in_ram(key) && !rig.slots->resident(key);
          const absl::Status status = rig.Run(c, pass.kind);
          if (!status.ok()) {
            ++failed_count;
            EXPECT_TRUE(needed);
            EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
            EXPECT_THAT(std::string(status.message()),
                        HasSubstr("staged/experts.bin: layer " + std::to_string(key.layer.value) +
                                  " expert " + std::to_string(key.expert.value)));
          } else {
            EXPECT_TRUE(!needed || reference);  // decoded before: nothing had to be read
            EXPECT_TRUE(rig.OutputIsRight(c));
          }
          rig.store.SetFailing({});
          rig.tiers->EndWindow(0);
          continue;
        }
        SCOPED_TRACE(p);
        rig.RunChecked(pass);
      }
      EXPECT_GT(failed_count, 1u);
    }
  }
}

TEST(ExpertTiers, NothingHangsWhenEveryReadAndEveryUploadFails) {
  for (const bool reference : {false, true}) {
    Rig rig({.budget = {.slot_count = 10},
             .store = {.miss_percent = 50},
             .pcie_share = 1,
             .worker_count = 2,
             .reference = reference});
    rig.store.set_all_failing(true);
    rig.device->fails = true;
    for (const Pass& pass : TheWorld().passes) {
      EXPECT_FALSE(rig.Run(pass.layers[0], pass.kind).ok());
      rig.tiers->EndWindow(0);
      EXPECT_EQ(rig.store.lease_count(), 0);
    }
    EXPECT_EQ(rig.slots->stats().resident_count, 0u);
    EXPECT_EQ(rig.tiers->ledger().total().passes, 0u);
    rig.slots->Seed(LayerId(0), std::vector<float>(kExperts, 5.0f));
    EXPECT_FALSE(rig.tiers->FillSlots(nullptr).ok());
    rig.store.set_all_failing(false);
    EXPECT_FALSE(rig.tiers->FillSlots(nullptr).ok());  // copies still fail
    rig.device->fails = false;
    EXPECT_TRUE(rig.tiers->FillSlots(nullptr).ok());
    rig.RunChecked(TheWorld().passes[4]);
  }
}

TEST(ExpertTiers, SlotsAreFilledWithTheHottestBeforeTheFirstPass) {
  Rig rig({.budget = {.slot_count = 12}, .store = {.miss_percent = 50}});
  for (uint32_t l = 0; l < 4; ++l) {
    std::vector<float> sightings(kExperts);
    for (uint32_t e = 0; e < 5; ++e) sightings[e * 2 + l] = static_cast<float>(10 - e);
    rig.slots->Seed(LayerId(l), sightings);
  }
  uint64_t last_done = 0, total = 0;
  ASSERT_TRUE(rig.tiers
                  ->FillSlots([&](uint64_t done, uint64_t all) {
                    EXPECT_GE(done, last_done);
                    EXPECT_LE(done, all);
                    last_done = done;
                    total = all;
                  })
                  .ok());
  EXPECT_GT(total, 0u);
  EXPECT_EQ(rig.store.lease_count(), 0);
  const uint32_t pool = rig.slots->pool_of(LayerId(0));
  EXPECT_EQ(rig.slots->counts(pool).resident, rig.slots->pools()[pool].slot_count);
  for (uint32_t l = 0; l < 4; ++l) EXPECT_TRUE(rig.slots->resident({LayerId(l), ExpertId(l)}));
  RunAll(rig);
}

// One pool with free slots and nothing to put there does not keep another one empty.
TEST(ExpertTiers, EveryPoolIsFilledWithWhatIsKnownOfIt) {
  Rig rig({.budget = {.share = 0.9}});
  std::vector<float> sightings(kExperts);
  std::fill_n(sightings.begin(), 11, 3.0f);
  const LayerId mtp(4);
  ASSERT_NE(rig.slots->pool_of(mtp), rig.slots->pool_of(LayerId(0)));
  rig.slots->Seed(LayerId(0), sightings);
  rig.slots->Seed(mtp, sightings);
  ASSERT_TRUE(rig.tiers->FillSlots(nullptr).ok());
  for (uint32_t e = 0; e < kExperts; ++e) {
    EXPECT_EQ(rig.slots->resident({LayerId(0), ExpertId(e)}), e < 11) << e;
    EXPECT_EQ(rig.slots->resident({mtp, ExpertId(e)}), e < 11) << e;
  }
}

// A prompt shows what is hot: free slots are filled when it has been read.
TEST(ExpertTiers, PromptFillsFreeSlots) {
  Rig rig({.budget = {.slot_count = 12}});
  rig.RunChecked(TheWorld().passes[0]);
  EXPECT_EQ(rig.slots->stats().resident_count, 12u);
  rig.RunChecked(TheWorld().passes[1]);
  EXPECT_GT(rig.distinct(Service::kVram), 0u);
}

TEST(ExpertTiers, LookaheadAsksOnceForWhatIsNeitherInVramNorInRam) {
  Rig rig({.budget = {.slot_count = 8}, .store = {.miss_percent = 50}});
  for (const Pass& pass : TheWorld().passes) {
    for (size_t l = 0; l + 1 < pass.layers.size(); ++l) {
      const LayerCase& c = pass.layers[l];
      const LayerCase& after = pass.layers[l + 1];
      const size_t before = rig.store.looked_ahead().size();
      const auto predict = [&]() -> std::span<const uint32_t> { return after.routes; };
      const NextLayer next{.layer = after.layer, .predict = predict};
      std::vector<float> output(c.expected.size());
      ASSERT_TRUE(
          rig.tiers->RunLayer(c.layer, c.Routes(), c.Input(false), pass.kind, output, &next).ok());
      EXPECT_EQ(output, c.expected);
      std::vector<ExpertKey> asked(
          rig.store.looked_ahead().begin() + static_cast<ptrdiff_t>(before),
          rig.store.looked_ahead().end());
      for (const ExpertKey key : asked) {
        EXPECT_EQ(key.layer, after.layer);
        EXPECT_FALSE(rig.store.in_ram(key));
      }
      std::ranges::sort(asked);
      EXPECT_EQ(std::ranges::adjacent_find(asked), asked.end());
    }
    rig.tiers->EndWindow(1);
  }
  EXPECT_GT(rig.store.looked_ahead().size(), 100u);
}

// A slot budget that is lowered in the middle stays lowered, and nothing else changes.
TEST(ExpertTiers, LoweredSlotsChangeNoOutput) {
  Rig rig({.budget = {.slot_count = 30}, .store = {.takes_exchange = true}, .pcie_share = 0.5});
  const auto run = [&](size_t begin, size_t end) {
    for (size_t p = begin; p < end; ++p) rig.RunChecked(TheWorld().passes[p]);
  };
  run(0, 15);
  const uint32_t pool = rig.slots->pool_of(LayerId(0));
  rig.slots->Lower(pool, 5);
  run(15, 45);
  EXPECT_LE(rig.slots->counts(pool).resident, 5u);
  rig.CheckLedger();
}

TEST(ExpertTiers, WindowsAllocateNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  for (const SlotBudget& budget :
       {SlotBudget{}, SlotBudget{.slot_count = 10}, SlotBudget{.share = 0.8}}) {
    Rig rig({.budget = budget,
             .store = {.miss_percent = 40, .takes_exchange = true},
             .pcie_share = 0.5,
             .worker_count = 2});
    const std::vector<Pass>& passes = TheWorld().passes;
    const auto run = [&](size_t begin, size_t end) {
      for (size_t p = begin; p < end; ++p) {
        if (passes[p].kind == TrafficKind::kPrompt) continue;
        for (const LayerCase& c : passes[p].layers) {
          ASSERT_TRUE(rig.Run(c, passes[p].kind).ok());
        }
        rig.tiers->EndWindow(1);
      }
    };
    rig.RunChecked(passes[0]);
    run(1, 15);
    const uint64_t before = AllocationCount();
    run(15, 45);
    EXPECT_EQ(AllocationCount(), before) << budget.slot_count << " " << budget.share;
  }
}

}  // namespace
}  // namespace hearth
