// Memory of images is counted to the byte, and a chain of spans knows how its prompt was cut.
#include "runtime/engine/prefix_image.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace hearth {
namespace {

std::shared_ptr<PrefixSpan> Span(std::shared_ptr<const PrefixSpan> before,
                                 const std::vector<TokenId>& tokens,
                                 const std::vector<uint32_t>& cuts,
                                 const std::shared_ptr<MemoryMeter>& meter) {
  auto span = MakeSpan({.before = std::move(before),
                        .tokens = tokens,
                        .cuts = cuts,
                        .draft_end = cuts.back() - 1,
                        .memory_bytes = 5000},
                       meter);
  EXPECT_TRUE(span.ok()) << span.status();
  return *std::move(span);
}

TEST(PrefixImage, MeterCountsWhatLivesAndNothingElse) {
  const auto meter = std::make_shared<MemoryMeter>();
  auto first = Span(nullptr, {1, 2, 3}, {2, 3}, meter);
  const uint64_t first_bytes = meter->bytes();
  EXPECT_EQ(first_bytes, PrefixSpan::MeteredBytes(3, 2, 5000));
  EXPECT_GE(first_bytes, 8192u + 5 * 4u) << "two pages and the lists";
  auto second = Span(first, {4}, {4}, meter);
  const uint64_t both_bytes = meter->bytes();
  first.reset();
  EXPECT_EQ(meter->bytes(), both_bytes) << "the span after it holds it";
  second.reset();
  EXPECT_EQ(meter->bytes(), 0u);
}

TEST(PrefixImage, SpansFollowEachOther) {
  const auto meter = std::make_shared<MemoryMeter>();
  const auto first = Span(nullptr, {1, 2, 3}, {2, 3}, meter);
  const auto second = Span(first, {4, 5}, {5}, meter);
  EXPECT_EQ(second->range.begin, 3u);
  EXPECT_EQ(second->range.end, 5u);
  EXPECT_EQ(second->range.draft_begin, 2u);
  EXPECT_EQ(second->range.draft_end, 4u);
  EXPECT_EQ(ChainOf(*second), (std::vector<const PrefixSpan*>{first.get(), second.get()}));
}

TEST(PrefixImage, CutsMustBeThoseOfTheWholeChain) {
  const auto meter = std::make_shared<MemoryMeter>();
  const auto first = Span(nullptr, {1, 2, 3}, {2, 3}, meter);
  const auto second = Span(first, {4, 5}, {5}, meter);
  const auto same = [&](const std::vector<uint32_t>& cuts) { return HasCutsOf(*second, cuts); };
  EXPECT_TRUE(same({2, 3, 5}));
  EXPECT_TRUE(same({2, 3, 5, 6, 9}));
  EXPECT_FALSE(same({2, 3, 6})) << "no cut where the span ends";
  EXPECT_FALSE(same({3, 5})) << "one less";
  EXPECT_FALSE(same({1, 2, 3, 5})) << "one more";
  EXPECT_FALSE(same({2, 3, 4, 5}));
  EXPECT_FALSE(same({1, 3, 5}));
  EXPECT_FALSE(same({}));
}

}  // namespace
}  // namespace hearth
