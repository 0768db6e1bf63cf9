// A layer's experts with a card that computes what is in slots: the outputs are the pool's, bit for
// bit, wherever an expert is and however late the card or the uploads are; nothing that the card
// may still read changes hands; and an error of the card or of an upload fails the pass, leaves
// nothing behind and lets the next one be right.
#include "runtime/experts/expert_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/experts/expert_tiers.h"
#include "runtime/experts/host_card.h"
#include "tests/runtime/experts/expert_tiers_rig.h"
#include "tests/support/allocation_count.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

struct CardCase {
  SlotBudget budget;
  double pcie_share;
  uint32_t miss_percent;
  bool streams = false;
};

class ExpertCardPlacement : public testing::TestWithParam<CardCase> {};

TEST_P(ExpertCardPlacement, OutputsAreThoseOfAPoolWithEverythingAtHand) {
  const CardCase& c = GetParam();
  Rig rig({.budget = c.budget,
           .store = {.miss_percent = c.miss_percent, .takes_exchange = true},
           .pcie_share = c.pcie_share,
           .has_card = true,
           .card_streams = c.streams});
  RunAll(rig);
  EXPECT_GT(rig.distinct(Service::kVram), 0u);
  EXPECT_EQ(rig.card->arrive_count + rig.card->stream_count, rig.distinct(Service::kPcie));
  if (!c.streams) {
    EXPECT_EQ(rig.card->stream_count, 0u);
  } else if (c.pcie_share > 0 && c.miss_percent < 100 && c.budget.share != 1) {
    EXPECT_GT(rig.card->stream_count, 0u);
    EXPECT_GT(rig.tiers->costs().pcie_expert_ns, 0);
  }
  EXPECT_GT(rig.tiers->ledger().total().of(Service::kVram).ns, 0);
  rig.tiers.reset();  // what is on its way lands
  for (const StagedStore::Exchanged& exchange : rig.store.exchanges()) {
    EXPECT_TRUE(exchange.right_bytes);
  }
  EXPECT_EQ(rig.store.exchanges().size(), rig.slots->stats().swap_count);
}

std::vector<CardCase> CardCases() {
  std::vector<CardCase> cases;
  for (const uint32_t miss_percent : {0u, 50u, 100u}) {
    for (const double share : {-1.0, 0.0, 0.3, 1.0}) {
      for (const uint32_t slots : {kRanks, 2 * kRanks, 40u}) {
        for (const bool streams : {false, true}) {
          cases.push_back({{.slot_count = slots}, share, miss_percent, streams});
        }
      }
      cases.push_back({{.share = 1}, share, miss_percent});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ExpertCardPlacement, testing::ValuesIn(CardCases()));

// The card is still at work when the next thing happens, uploads and reads come in any order.
TEST(ExpertCard, OutputsAreTheSameWhenTheCardAndEverythingElseIsLate) {
  for (const uint32_t spares : {1u, 3u, 4u}) {
    uint32_t layer_count = 0;
    Rig rig({.budget = {.slot_count = 12},
             .store = {.miss_percent = 40, .delay_us_max = 60, .takes_exchange = true},
             .pcie_share = 0.5,
             .spare_count = spares,
             .worker_count = 3,
             .copy_delay_us_max = 150,
             .has_card = true,
             .card_streams = spares != 3,
             .before_card_layer = [&](LayerId) {
               YieldFor(static_cast<int64_t>(SplitMix64(layer_count++) % 800));
             }});
    RunAll(rig);
    EXPECT_GT(rig.distinct(Service::kPcie), 0u);
    EXPECT_GT(rig.distinct(Service::kVram), 0u);
    EXPECT_GT(rig.distinct(Service::kSsd), 0u);
  }
}

// The card holds still in the middle of a layer: the host is not held up, and the slots that it
// reads stay as they are until it has passed.
TEST(ExpertCard, SlotsAreHeldUntilTheCardHasPassedTheLayer) {
  std::atomic<bool> open{true};
  Rig rig({.budget = {.slot_count = 8},
           .pcie_share = 1,
           .has_card = true,
           .before_card_layer = [&](LayerId) { open.wait(false); }});
  for (uint32_t p = 0; p < 4; ++p) rig.RunChecked(TheWorld().passes[p]);
  const Pass& pass = TheWorld().passes[4];
  const LayerCase& c = pass.layers[0];
  open = false;
  ASSERT_TRUE(rig.Run(c, pass.kind).ok());  // it does not wait for the card
  const uint32_t pool = rig.slots->pool_of(c.layer);
  uint32_t read_count = 0;
  std::vector<SlotRef> read;
  for (const PlannedExpert& planned : rig.tiers->plan().experts) {
    if (planned.service == Service::kCpu) continue;
    ++read_count;
    const SlotLease lease = rig.slots->Acquire({c.layer, planned.expert});
    if (lease.valid()) read.push_back(lease.ref());
  }
  ASSERT_GT(read_count, 0u);
  const SlotCounts counts = rig.slots->counts(pool);
  // Uploads for this layer alone are neither resident nor free yet.
  EXPECT_EQ(counts.filling, read_count - read.size());
  rig.slots->Lower(pool, 0);  // evicts what it may
  for (const SlotRef ref : read) EXPECT_NE(rig.slots->state(ref), SlotState::kFree);
  for (const SlotRef ref : read) EXPECT_NE(rig.slots->state(ref), SlotState::kRetired);
  open = true;
  open.notify_all();
  EXPECT_TRUE(rig.OutputIsRight(c));
  rig.tiers->EndWindow(1);
  EXPECT_EQ(rig.slots->counts(pool).filling, 0u);
}

// What the card brings in by itself stays in RAM until it has passed the layer; of a prompt that
// may be more than there are spare slots.
TEST(ExpertCard, StreamedExpertsStayInRamUntilTheCardHasPassedTheLayer) {
  std::atomic<bool> open{true};
  Rig rig({.budget = {.slot_count = 6},
           .pcie_share = 1,
           .spare_count = 2,
           .has_card = true,
           .card_streams = true,
           .before_card_layer = [&](LayerId) { open.wait(false); }});
  open = false;
  const Pass& prompt = TheWorld().passes[0];
  ASSERT_TRUE(rig.Run(prompt.layers[0], prompt.kind).ok());
  const auto streamed = static_cast<int64_t>(rig.card->stream_count);
  EXPECT_GT(streamed, 8);
  EXPECT_EQ(rig.store.lease_count(), streamed);
  open = true;
  open.notify_all();
  EXPECT_TRUE(rig.OutputIsRight(prompt.layers[0]));
  ASSERT_TRUE(rig.Run(prompt.layers[1], prompt.kind).ok());
  rig.tiers->EndWindow(0);
  EXPECT_LE(rig.store.lease_count(), 8);  // of promotions under way
}

// With an automatic share and nothing known a prompt is the card's, but for what the CPU's cost is
// learned from; what a prompt takes says nothing of windows.
TEST(ExpertCard, APromptIsStreamedAndItsCostsAreItsOwn) {
  Rig rig({.budget = {.slot_count = 6}, .has_card = true, .card_streams = true});
  const Pass& prompt = TheWorld().passes[0];
  const LayerCase& c = prompt.layers[0];
  ASSERT_TRUE(rig.Run(c, prompt.kind).ok());
  EXPECT_TRUE(rig.OutputIsRight(c));
  const uint64_t misses = rig.distinct(Service::kPcie) + rig.distinct(Service::kCpu);
  EXPECT_GT(misses, 8u);
  EXPECT_EQ(rig.distinct(Service::kCpu), 1 + misses / 16);
  rig.tiers->EndWindow(0);
  EXPECT_GT(rig.tiers->prompt_costs().cpu_expert_ns, 0);
  EXPECT_GT(rig.tiers->prompt_costs().pcie_expert_ns, 0);
  EXPECT_EQ(rig.tiers->costs().cpu_expert_ns, 0);
  EXPECT_EQ(rig.tiers->costs().pcie_expert_ns, 0);
}

TEST(ExpertCard, AnErrorFailsThePassAndTheNextOneIsRight) {
  using Step = FaultyCard::Step;
  for (const Step step : {Step::kBegin, Step::kStream, Step::kFinish, Step::kRetire}) {
    Rig rig({.budget = {.slot_count = 10},
             .store = {.miss_percent = 30, .takes_exchange = true},
             .pcie_share = 0.5,
             .has_card = true,
             .card_streams = step == Step::kStream});
    for (uint32_t p = 0; p < TheWorld().passes.size(); ++p) {
      SCOPED_TRACE(p);
      const Pass& pass = TheWorld().passes[p];
      if (p % 3 != 1) {
        rig.RunChecked(pass);
        continue;
      }
      rig.card->fails_at = step;
      absl::Status status = rig.Run(pass.layers[0], pass.kind);
      if (step == Step::kStream && status.ok()) {  // everything was in slots or on the drive
        rig.card->fails_at = Step::kNone;
        rig.tiers->EndWindow(0);
        continue;
      }
      // What went wrong on the card behind the last layer is found by the next one.
      if (step == Step::kRetire) status = rig.Run(pass.layers[1], pass.kind);
      rig.card->fails_at = Step::kNone;
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("it is on fire"));
      rig.tiers->EndWindow(0);
      for (uint32_t pool = 0; pool < rig.slots->pools().size(); ++pool) {
        EXPECT_LE(rig.slots->counts(pool).filling, 8u);  // promotions under way
      }
    }
  }
}

TEST(ExpertCard, NothingHangsOrLeaksWhenEveryReadAndEveryUploadFails) {
  Rig rig({.budget = {.slot_count = 10},
           .store = {.miss_percent = 50},
           .pcie_share = 1,
           .worker_count = 2,
           .has_card = true});
  rig.store.set_all_failing(true);
  rig.device->fails = true;
  for (const Pass& pass : TheWorld().passes) {
    EXPECT_FALSE(rig.Run(pass.layers[0], pass.kind).ok());
    rig.tiers->EndWindow(0);
    EXPECT_EQ(rig.store.lease_count(), 0);
  }
  for (uint32_t pool = 0; pool < rig.slots->pools().size(); ++pool) {
    EXPECT_EQ(rig.slots->counts(pool).filling, 0u);
    EXPECT_EQ(rig.slots->counts(pool).resident, 0u);
  }
  EXPECT_EQ(rig.card->arrive_count, 0u);
  rig.store.set_all_failing(false);
  rig.device->fails = false;
  rig.RunChecked(TheWorld().passes[4]);
}

// A device that does not answer at all is the end: an error within the bound, and again for every
// later layer, but no wait without end and no slot that changes hands under an upload.
TEST(ExpertCard, ADeviceThatNeverAnswersIsAnErrorWithinABound) {
  Rig rig({.budget = {.slot_count = 10},
           .pcie_share = 1,
           .has_card = true,
           .upload_wait_ns = 20'000'000});
  rig.device->keeps_silent = true;
  const Pass& pass = TheWorld().passes[1];
  const absl::Status status = rig.Run(pass.layers[0], pass.kind);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer 0: poisoned host memory"));
  EXPECT_EQ(rig.Run(pass.layers[1], pass.kind).code(), absl::StatusCode::kDeadlineExceeded);
  rig.tiers->EndWindow(0);
  EXPECT_EQ(rig.device->upload_count, rig.slots->counts(0).filling);
  rig.device->Answer();  // whoever is gone has no more uploads under way
}

TEST(ExpertCard, ReferenceArithmeticReadsSlotsBackAndLeavesTheCardAlone) {
  for (const double share : {0.0, 0.4}) {
    Rig rig({.budget = {.slot_count = 16},
             .store = {.miss_percent = 30, .takes_exchange = true},
             .pcie_share = share,
             .reference = true,
             .has_card = true});
    for (const Pass& pass : TheWorld().passes) {
      for (const LayerCase& c : pass.layers) {
        ASSERT_TRUE(rig.Run(c, pass.kind).ok());
        ASSERT_TRUE(rig.OutputIsRight(c)) << c.layer.value;
      }
      rig.tiers->EndWindow(1);
    }
    EXPECT_GT(rig.distinct(Service::kVram), 0u);
    EXPECT_EQ(rig.card->begin_count, 0u);
  }
}

// Slots that neither the card computes nor the pool reads hold nothing of use.
TEST(ExpertCard, WhatTheCardDoesNotComputeComesFromRam) {
  Rig rig({.budget = {.slot_count = 16}, .store = {.miss_percent = 30}, .has_card = true});
  for (uint32_t p = 0; p < 5; ++p) rig.RunChecked(TheWorld().passes[p]);
  const uint64_t in_vram = rig.distinct(Service::kVram);
  const uint32_t begun = rig.card->begin_count;
  rig.card->computes = false;
  for (const LayerCase& c : TheWorld().passes[5].layers) {
    ASSERT_TRUE(rig.Run(c, TrafficKind::kWindow).ok());
    EXPECT_TRUE(rig.OutputIsRight(c));
  }
  EXPECT_EQ(rig.distinct(Service::kVram), in_vram);
  EXPECT_EQ(rig.card->begin_count, begun);
}

// A card that finds what it computes by itself: outputs and ledger are right however late it and
// the uploads are, although nothing but its table of the window says what it reads when.
TEST(ExpertCard, FollowsTheRoutesByItsOwnTable) {
  for (const bool in_place : {false, true}) {
    for (const double share : {-1.0, 0.0, 0.5, 1.0}) {
      for (const uint32_t spares : {1u, 3u, 8u}) {
        SCOPED_TRACE(testing::Message() << in_place << " " << share << " " << spares);
        uint32_t layer_count = 0;
        Rig rig({.budget = {.slot_count = 14},
                 .store = {.miss_percent = in_place ? 0u : 40u, .keeps_in_place = in_place},
                 .pcie_share = share,
                 .spare_count = spares,
                 .worker_count = 2,
                 .copy_delay_us_max = 60,
                 .has_card = true,
                 .card_streams = true,
                 .card_follows = true,
                 .card_takes_late = !in_place && share != 0,
                 .before_card_layer = [&](LayerId) {
                   YieldFor(static_cast<int64_t>(SplitMix64(layer_count++) % 300));
                 }});
        RunAll(rig);
        if (HasFatalFailure()) return;
        EXPECT_GT(rig.distinct(Service::kVram), 0u);
        EXPECT_GT(rig.slots->stats().swap_count, 20u);
        EXPECT_EQ(rig.distinct(Service::kSsd) > 0, !in_place);
        EXPECT_TRUE(share <= 0 || rig.distinct(Service::kPcie) > 0);
        EXPECT_TRUE(share != 1 || !in_place || rig.distinct(Service::kCpu) == 0);
      }
    }
  }
}

// The card stands still in a window's first layer: experts of later layers that are evicted
// meanwhile keep their slots, those of the layer's that it has passed do not.
TEST(ExpertCard, AnEvictedExpertKeepsItsSlotUntilTheCardHasPassedItsLayer) {
  Rig rig({.budget = {.slot_count = 20},
           .store = {.keeps_in_place = true},
           .pcie_share = 0,
           .has_card = true,
           .card_follows = true,
           .card_takes_late = false});
  for (uint32_t p = 0; p < 9; ++p) rig.RunChecked(TheWorld().passes[p]);
  const Pass& pass = TheWorld().passes[9];  // of one row
  ASSERT_GE(pass.layers.size(), 2u);
  rig.BeginPass(pass.kind);
  ASSERT_TRUE(rig.Run(pass.layers[0], pass.kind).ok());
  std::vector<SlotRef> of_later_layers, of_passed_layers;
  for (uint32_t e = 0; e < kExperts; ++e) {
    for (const bool later : {false, true}) {
      const SlotLease lease = rig.slots->Acquire({LayerId(later ? 1 : 0), ExpertId(e)});
      if (lease.valid()) (later ? of_later_layers : of_passed_layers).push_back(lease.ref());
    }
  }
  ASSERT_FALSE(of_later_layers.empty());
  rig.slots->Lower(rig.slots->pool_of(LayerId(0)), 0);
  rig.tiers->EndLayer();
  const auto in_place = [&](SlotRef ref) {
    return rig.slots->state(ref) != SlotState::kFree &&
           rig.slots->state(ref) != SlotState::kRetired;
  };
  EXPECT_TRUE(std::ranges::all_of(of_later_layers, in_place));
  EXPECT_TRUE(std::ranges::all_of(of_passed_layers, in_place));
  ASSERT_TRUE(rig.Run(pass.layers[1], pass.kind).ok());
  EXPECT_TRUE(rig.OutputIsRight(pass.layers[1]));
  EXPECT_TRUE(std::ranges::all_of(of_later_layers, in_place));
  EXPECT_FALSE(std::ranges::all_of(of_passed_layers, in_place));
  rig.tiers->EndWindow(1);
  EXPECT_FALSE(std::ranges::all_of(of_later_layers, in_place));
}

// Rows are on their way when a layer begins: nobody looks at them where the card takes all entries.
TEST(ExpertCard, RowsAreAwaitedOnlyWhereTheCpuComputes) {
  class Rows final : public RowsArrival {
   public:
    absl::Status AwaitRows() override {
      ++count;
      return status;
    }
    uint32_t count = 0;
    absl::Status status;
  };
  for (const double share : {0.0, 1.0}) {
    Rig rig({.budget = {.slot_count = 20},
             .store = {.keeps_in_place = true},
             .pcie_share = share,
             .has_card = true,
             .card_follows = true,
             .card_takes_late = false});
    Rows rows;
    rig.arrival = &rows;
    for (uint32_t p = 1; p < 6; ++p) {
      rig.BeginPass(TrafficKind::kWindow);
      for (const LayerCase& c : TheWorld().passes[p].layers) {
        ASSERT_TRUE(rig.Run(c, TrafficKind::kWindow).ok());
        ASSERT_TRUE(rig.OutputIsRight(c));
      }
      rig.tiers->EndWindow(1);
    }
    EXPECT_EQ(rows.count > 0, share == 0);
    EXPECT_EQ(rig.distinct(Service::kCpu) > 0, share == 0);
    if (share != 0) continue;
    rows.status = absl::DeadlineExceededError("layer 0: the rows are lost");
    rig.BeginPass(TrafficKind::kWindow);
    EXPECT_EQ(rig.Run(TheWorld().passes[6].layers[0], TrafficKind::kWindow), rows.status);
    rig.tiers->EndWindow(0);
    rig.arrival = nullptr;
    rig.RunChecked(TheWorld().passes[7]);
  }
}

TEST(ExpertCard, WindowsAllocateNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  for (const uint32_t way : {0u, 1u, 2u}) {
    const bool streams = way == 1;
    Rig rig({.budget = {.slot_count = 10},
             .store = {.miss_percent = way == 2 ? 0u : 40u,
                       .takes_exchange = true,
                       .keeps_in_place = way == 2},
             .pcie_share = 0.5,
             .worker_count = 2,
             .has_card = true,
             .card_streams = streams,
             .card_follows = way == 2,
             .card_takes_late = false});
    rig.RunChecked(TheWorld().passes[0]);
    RunWindows(rig, 1, 15);
    const uint64_t before = AllocationCount();
    RunWindows(rig, 15, 45);
    EXPECT_EQ(AllocationCount(), before) << way;
  }
}

}  // namespace
}  // namespace hearth
