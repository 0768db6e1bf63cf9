// Memory of a RAM tier pinned in pieces: whole pages only, as far as the system allows, and what
// one copy may read of it.
#include "runtime/experts/pinned_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/file.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096;

// Pins in name only, and remembers what is pinned.
class FakePins {
 public:
  PinnedRanges::Pin Fn() {
    return [this](std::span<const std::byte> range,
                  bool writable) -> absl::StatusOr<PinnedRanges::Pinned> {
      if (pinned_bytes + range.size() > limit_bytes) {
        return absl::ResourceExhaustedError("pinning: no more; ulimit -l");
      }
      pinned_bytes += range.size();
      ranges.push_back(range);
      all_writable = all_writable && writable;
      const auto unpin = [this, bytes = range.size()](const void*) { pinned_bytes -= bytes; };
      return PinnedRanges::Pinned{.registration = std::shared_ptr<const void>(range.data(), unpin),
                                  .card_address = range.data() + kCardOffset};
    };
  }
  static constexpr ptrdiff_t kCardOffset = 1 << 20;
  uint64_t limit_bytes = UINT64_MAX;
  uint64_t pinned_bytes = 0;
  std::vector<std::span<const std::byte>> ranges;
  bool all_writable = true;
};

class PinnedRangesTest : public testing::Test {
 protected:
  PinnedRangesTest()
      : first_(*AnonymousMapping::Create(10 * kPage)), second_(*AnonymousMapping::Create(kPage)) {}
  std::span<const std::byte> First() const { return first_.data().first(10 * kPage); }
  std::span<const std::byte> Second() const { return second_.data().first(kPage); }
  AnonymousMapping first_, second_;
  FakePins pins_;
};

TEST_F(PinnedRangesTest, PinsWholePagesInPieces) {
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  {
    const PinnedRanges ranges = PinnedRanges::Create(
        {{.bytes = First().first(9 * kPage + 100)}, {.bytes = Second(), .writable = false}},
        4 * kPage, pins_.Fn(),
        [&](uint64_t done, uint64_t total) { progress.emplace_back(done, total); });
    EXPECT_EQ(ranges.bytes(), 10 * kPage);
    EXPECT_TRUE(ranges.notes().empty());
    EXPECT_EQ(pins_.ranges.size(), 4u);
    EXPECT_FALSE(pins_.all_writable);
    ASSERT_EQ(progress.size(), 4u);
    EXPECT_EQ(progress.back(), std::make_pair(10 * kPage, 10 * kPage));
    EXPECT_EQ(ranges.first_piece().size() % kPage, 0u);
    EXPECT_EQ(ranges.PinnedBytes(ranges.first_piece()), ranges.first_piece().size());
    // What one copy reads ends with its piece.
    EXPECT_EQ(ranges.PinnedBytes(First()), 4 * kPage);
    EXPECT_EQ(ranges.PinnedBytes(First().first(100)), 100u);
    EXPECT_EQ(ranges.PinnedBytes(First().subspan(4 * kPage - 10, 100)), 10u);
    EXPECT_EQ(ranges.PinnedBytes(First().subspan(8 * kPage, kPage + 200)), kPage);
    EXPECT_EQ(ranges.PinnedBytes(First().subspan(9 * kPage)), 0u);
    EXPECT_EQ(ranges.PinnedBytes(Second()), kPage);
    const std::byte outside{};
    EXPECT_EQ(ranges.PinnedBytes({&outside, 1}), 0u);
    EXPECT_TRUE(ranges.AllPinned(First().first(9 * kPage)));
    EXPECT_FALSE(ranges.AllPinned(First()));
    EXPECT_FALSE(ranges.AllPinned({&outside, 1}));
    // A card reads what lies in one piece.
    EXPECT_EQ(ranges.CardAddress(First().subspan(5 * kPage, 200)),
              First().data() + 5 * kPage + FakePins::kCardOffset);
    EXPECT_EQ(ranges.CardAddress(First().subspan(4 * kPage - 10, 100)), nullptr);
    EXPECT_EQ(ranges.CardAddress({&outside, 1}), nullptr);
  }
  EXPECT_EQ(pins_.pinned_bytes, 0u);
}

TEST_F(PinnedRangesTest, WhatIsRefusedIsANoteAndTheRestStays) {
  pins_.limit_bytes = 5 * kPage;
  const PinnedRanges ranges = PinnedRanges::Create({{.bytes = First()}, {.bytes = Second()}},
                                                   2 * kPage, pins_.Fn(), nullptr);
  EXPECT_EQ(ranges.bytes(), 4 * kPage);
  ASSERT_EQ(ranges.notes().size(), 1u);
  EXPECT_THAT(ranges.notes()[0], HasSubstr("ulimit -l"));
  EXPECT_EQ(ranges.PinnedBytes(First()), 2 * kPage);
  EXPECT_EQ(ranges.PinnedBytes(Second()), 0u);
}

TEST_F(PinnedRangesTest, KeepsMappedWhatItPins) {
  auto mapping = std::make_shared<const AnonymousMapping>(std::move(second_));
  const std::weak_ptr<const AnonymousMapping> watch = mapping;
  {
    std::vector<StoreMemory> memory = {{.bytes = mapping->data(), .keep_mapped = mapping}};
    const PinnedRanges ranges = PinnedRanges::Create(std::move(memory), kPage, pins_.Fn(), nullptr);
    mapping.reset();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(ranges.bytes(), pins_.pinned_bytes);
  }
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(pins_.pinned_bytes, 0u);
}

TEST_F(PinnedRangesTest, NothingIsPinnedOfNothing) {
  EXPECT_EQ(PinnedRanges().PinnedBytes(First()), 0u);
  EXPECT_TRUE(PinnedRanges().first_piece().empty());
  EXPECT_EQ(PinnedRanges::Create({}, kPage, pins_.Fn(), nullptr).bytes(), 0u);
}

}  // namespace
}  // namespace hearth
