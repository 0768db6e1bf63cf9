// A layer's experts from wherever they are: whatever is in VRAM, uploaded, in RAM or still to be
// read, whatever comes late or not at all, the outputs are those of a pool that has everything at
// hand, bit for bit, and the ledger says who did what.
#include "runtime/experts/expert_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/experts/expert_tiers_rig.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

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
  rig.tiers.reset();  // what is on its way lands
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
  Rig rig({.budget = {.slot_count = 8}, .pcie_share = -1, .has_card = true});
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
    rig.RunChecked(TheWorld().passes[0]);
    RunWindows(rig, 1, 15);
    const uint64_t before = AllocationCount();
    RunWindows(rig, 15, 45);
    EXPECT_EQ(AllocationCount(), before) << budget.slot_count << " " << budget.share;
  }
}

}  // namespace
}  // namespace hearth
