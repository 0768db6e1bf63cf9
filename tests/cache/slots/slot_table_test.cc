// The states of a slot: every path between them, and that nobody who holds one loses it.
#include "cache/slots/slot_table.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

ExpertKey Key(uint32_t layer, uint32_t expert) { return {LayerId(layer), ExpertId(expert)}; }

SlotTable MakeTable(uint32_t slots) {
  const std::vector<LayerId> layers = {LayerId(1), LayerId(3)};
  return SlotTable(layers, 4, 8, slots);
}

TEST(SlotTable, AnExpertIsFoundFromItsFillToItsEviction) {
  SlotTable table = MakeTable(2);
  const ExpertKey key = Key(3, 7);
  EXPECT_FALSE(table.Find(key).valid());
  const SlotId slot = table.BeginFill(key);
  ASSERT_TRUE(slot.valid());
  EXPECT_EQ(table.Find(key), slot);
  EXPECT_FALSE(table.resident(key));
  table.Land(slot);
  EXPECT_TRUE(table.resident(key));
  EXPECT_EQ(table.key(slot), key);
  table.Evict(slot);
  EXPECT_FALSE(table.Find(key).valid());
  EXPECT_EQ(table.state(slot), SlotState::kFree);
}

TEST(SlotTable, AHeldSlotIsNotFilledAgainBeforeItsLastRelease) {
  SlotTable table = MakeTable(1);
  const SlotId slot = table.BeginFill(Key(1, 0));
  table.Land(slot);
  table.Hold(slot);
  table.Hold(slot);
  table.Evict(slot);
  EXPECT_EQ(table.state(slot), SlotState::kLeaving);
  table.Release(slot);
  table.Reclaim();
  EXPECT_FALSE(table.BeginFill(Key(1, 1)).valid());
  EXPECT_EQ(table.available_count(), 0u);
  table.Release(slot);
  EXPECT_EQ(table.available_count(), 1u);
  EXPECT_FALSE(table.BeginFill(Key(1, 1)).valid()) << "free only from the next Reclaim()";
  table.Reclaim();
  EXPECT_EQ(table.BeginFill(Key(1, 1)), slot);
}

TEST(SlotTable, AnEvictedExpertMayComeBackWhileItsFirstSlotIsStillHeld) {
  SlotTable table = MakeTable(2);
  const SlotId first = table.BeginFill(Key(1, 0));
  table.Land(first);
  table.Hold(first);
  table.Evict(first);
  const SlotId second = table.BeginFill(Key(1, 0));
  ASSERT_TRUE(second.valid());
  EXPECT_NE(first, second);
  table.Land(second);
  table.Release(first);
  table.Reclaim();
  EXPECT_EQ(table.Find(Key(1, 0)), second);
}

TEST(SlotTable, TheGenerationChangesBeforeAnythingIsWritten) {
  SlotTable table = MakeTable(1);
  const SlotId slot = table.BeginFill(Key(1, 0));
  const uint64_t generation = table.generation(slot);
  table.Land(slot);
  table.Evict(slot);
  EXPECT_EQ(table.generation(slot), generation);
  EXPECT_EQ(table.BeginFill(Key(1, 1)), slot);
  EXPECT_EQ(table.generation(slot), generation + 1);
  table.Discard(slot);
  EXPECT_EQ(table.BeginFill(Key(1, 2)), slot);
  EXPECT_EQ(table.generation(slot), generation + 2);
}

TEST(SlotTable, RetiredSlotsAreNeverUsedAgain) {
  SlotTable table = MakeTable(3);
  const SlotId held = table.BeginFill(Key(1, 0));
  table.Land(held);
  table.Hold(held);
  const SlotId filling = table.BeginFill(Key(1, 1));
  table.Retire(3);
  EXPECT_EQ(table.counts().retired, 1u);
  EXPECT_EQ(table.state(filling), SlotState::kFilling) << "what is under way ends as it would";
  table.Discard(filling);
  table.Evict(held);
  table.Release(held);
  EXPECT_EQ(table.available_count(), 0u);
  table.Reclaim();
  EXPECT_EQ(table.counts().retired, 3u);
  EXPECT_FALSE(table.BeginFill(Key(1, 2)).valid());
}

TEST(SlotTableDeathTest, BreachesOfTheLifeOfASlotStop) {
  SlotTable table = MakeTable(2);
  const SlotId slot = table.BeginFill(Key(1, 0));
  EXPECT_DEATH(table.BeginFill(Key(1, 0)), "place");
  EXPECT_DEATH(table.Hold(slot), "kResident");
  EXPECT_DEATH(table.Evict(slot), "kResident");
  table.Land(slot);
  EXPECT_DEATH(table.Discard(slot), "kFilling");
  EXPECT_DEATH(table.Release(slot), "before > 0");
  EXPECT_DEATH(table.Find(Key(0, 0)), "begin") << "a layer of another pool";
  EXPECT_DEATH(table.Find(Key(1, 8)), "expert");
  EXPECT_DEATH(table.Retire(3), "total_count");
}

}  // namespace
}  // namespace hearth
