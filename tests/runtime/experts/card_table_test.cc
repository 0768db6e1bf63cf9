// What a card that follows the routes is told: slots and RAM as they change hands, and a split of
// misses that finds the cheaper side again after a first measurement that was far off.
#include "runtime/experts/card_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "tests/support/staged_store.h"
#include "tests/support/tiny_arena.h"

namespace hearth {
namespace {

class TellingCard final : public ExpertCard {
 public:
  std::string_view name() const override { return "tells"; }
  bool Computes(LayerId, const ExpertRows&) const override { return true; }
  bool FollowsRoutes() const override { return true; }
  void SetSlot(ExpertKey key, SlotRef slot) override { slots[key] = slot; }
  void SetHostBytes(ExpertKey key, std::span<const std::byte>) override { in_host.insert(key); }
  void SetStreamRule(const StreamRule& told) override { rule = told; }
  absl::Status Begin(LayerId, const WindowPlan&, const ExpertRows&,
                     std::span<const CardExpert>) override {
    return absl::OkStatus();
  }
  bool Streams(std::span<const std::byte>) const override { return true; }
  absl::Status Stream(std::span<const StreamedExpert>) override { return absl::OkStatus(); }
  void Arrive(const CardExpert&) override {}
  absl::Status Finish() override { return absl::OkStatus(); }
  absl::StatusOr<CardTimes> Retire() override { return CardTimes{}; }

  std::map<ExpertKey, SlotRef> slots;
  std::set<ExpertKey> in_host;
  StreamRule rule;
};

class CardTableTest : public testing::Test {
 protected:
  void Make(double share, double link_expert_ns) {
    table_ = std::make_unique<CardTable>(
        CardTable::Deps{.store = store_, .slots = *slots_, .card = card_},
        CardTable::Options{.pcie_share = share, .link_expert_ns = link_expert_ns});
  }
  // `layers` layers with one missed expert each, as the rule splits them.
  void RunWindow(uint32_t layers, int64_t cpu_ns, int64_t link_ns) {
    uint32_t left = card_.rule.experts_max;
    for (uint32_t l = 0; l < layers; ++l) {
      if (card_.rule.count[1] != 0 && left > 0) {
        --left;
        ++linked_;
        table_->Measured({.link_experts = 1, .link_ns = link_ns});
      } else {
        table_->Measured({.cpu_experts = 1, .cpu_ns = cpu_ns});
      }
    }
    table_->EndWindow();
  }

  TinyArena arena_{TinyOptions::For(TinyExperts::kModelOptNvfp4)};
  StagedStore store_{arena_.store(), {.keeps_in_place = true}};
  std::unique_ptr<SlotCache> slots_ = arena_.MakeSlots({.slot_count = 8}, 2);
  TellingCard card_;
  std::unique_ptr<CardTable> table_;
  uint32_t linked_ = 0;
};

TEST_F(CardTableTest, TellsWhereExpertsAre) {
  Make(0.5, 0);
  EXPECT_EQ(card_.in_host.size(), size_t{store_.layer_count()} * store_.expert_count());
  EXPECT_EQ(card_.rule.count[6], 3);
  const Swap in{.in = {LayerId(0), ExpertId(1)}, .out = ExpertKey()};
  slots_->BeginSwap(in);
  const SlotRef slot = *slots_->BeginFill(in.in);
  slots_->Land(slot, in);
  EXPECT_EQ(card_.slots.at(in.in), slot);
  table_->BeginLayer(LayerId(0));
  slots_->Lower(slots_->pool_of(LayerId(0)), 0);
  EXPECT_FALSE(card_.slots.at(in.in).valid());
  EXPECT_EQ(slots_->state(slot), SlotState::kLeaving) << "the card may still read it";
}

TEST_F(CardTableTest, TriesTheCpuAgainAfterABadStart) {
  Make(-1, 60'000);
  RunWindow(30, 5'000'000, 60'000);
  EXPECT_EQ(card_.rule.count[1], 1);
  for (int w = 0; w < 60; ++w) RunWindow(30, 40'000, 60'000);
  EXPECT_EQ(card_.rule.count[1], 0);
  linked_ = 0;
  for (int w = 0; w < 80; ++w) RunWindow(30, 40'000, 60'000);
  EXPECT_GT(linked_, 0u);
  EXPECT_LE(linked_, 12u) << "a few in every thirty-second window";
}

TEST_F(CardTableTest, TriesTheLinkAgainWhenItWasSlowOnce) {
  Make(-1, 60'000);
  for (int w = 0; w < 3; ++w) RunWindow(30, 100'000, 2'000'000);
  for (int w = 0; w < 20; ++w) RunWindow(30, 100'000, 2'000'000);
  EXPECT_EQ(std::ranges::count(card_.rule.count, 0) > 1, true);
  for (int w = 0; w < 400; ++w) RunWindow(30, 100'000, 40'000);
  EXPECT_EQ(card_.rule.count[1], 1);
  linked_ = 0;
  RunWindow(30, 100'000, 40'000);
  EXPECT_GE(linked_, 20u);
}

TEST_F(CardTableTest, AShareOfTheUsersIsNotProbed) {
  Make(0, 60'000);
  for (int w = 0; w < 40; ++w) RunWindow(30, 100'000, 40'000);
  EXPECT_EQ(linked_, 0u);
}

}  // namespace
}  // namespace hearth
