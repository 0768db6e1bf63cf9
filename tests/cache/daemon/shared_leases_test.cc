// The daemon's half of the shared memory: what the directory shows, and which blocks may go.
#include "cache/daemon/shared_leases.h"

#include <gtest/gtest.h>

#include <memory>

#include "cache/protocol/shared_memory.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

class SharedLeasesTest : public ::testing::Test {
 protected:
  SharedLeasesTest() {
    HazardPage::Format(page_memory_.data(), 4);
    leases_->AddPage(page_);
  }
  std::span<std::byte> Block(uint32_t index) {
    return arena_.data().subspan(index * kArenaPageBytes, kArenaPageBytes);
  }
  ResidentDirectory directory() {
    return *ResidentDirectory::Attach(leases_->directory_memory().data(), kShape);
  }

  static constexpr ResidentDirectory::Shape kShape{2, 4};
  SharedMemory arena_ = *SharedMemory::Create("arena", 8 * 4096, SharedWriting::kGivesBack);
  std::unique_ptr<SharedLeases> leases_ = *SharedLeases::Create(kShape, arena_.data());
  SharedMemory page_memory_ =
      *SharedMemory::Create("page", HazardPage::BytesFor(4), SharedWriting::kEverybody);
  HazardPage page_ = HazardPage::Format(page_memory_.data(), 4);
};

TEST_F(SharedLeasesTest, ShowsABlockUntilItGoes) {
  EXPECT_FALSE(leases_->HeldElsewhere(BlockId(3))) << "never shown";
  const ArenaPlace place = leases_->Publish(BlockId(3), Key(1, 2), Block(3));
  EXPECT_EQ(place, (ArenaPlace{.page = 3, .generation = 1}));
  EXPECT_EQ(directory().Read(Key(1, 2)), place);
  EXPECT_EQ(leases_->Publish(BlockId(3), Key(1, 2), Block(3)), place) << "shown already";
  EXPECT_FALSE(leases_->HeldElsewhere(BlockId(3)));
  EXPECT_FALSE(directory().Read(Key(1, 2)).valid());
  EXPECT_EQ(leases_->Publish(BlockId(5), Key(1, 2), Block(5)),
            (ArenaPlace{.page = 5, .generation = 2}));
}

TEST_F(SharedLeasesTest, AHeldBlockStaysAndStaysShown) {
  leases_->Publish(BlockId(0), Key(0, 0), Block(0));
  ASSERT_TRUE(page_.TryHold(2, Key(0, 0), directory()).has_value());
  EXPECT_TRUE(leases_->HeldElsewhere(BlockId(0)));
  EXPECT_TRUE(directory().Read(Key(0, 0)).valid());
  page_.Drop(2);
  EXPECT_FALSE(leases_->HeldElsewhere(BlockId(0)));
}

TEST_F(SharedLeasesTest, ARemovedPageHoldsNothing) {
  leases_->Publish(BlockId(0), Key(0, 0), Block(0));
  ASSERT_TRUE(page_.TryHold(2, Key(0, 0), directory()).has_value());
  leases_->RemovePage(page_);
  EXPECT_FALSE(leases_->HeldElsewhere(BlockId(0)));
}

}  // namespace
}  // namespace hearth
