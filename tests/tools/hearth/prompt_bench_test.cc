// Prompts that a benchmark is asked for, and the floor of a layer's experts of one.
#include "tools/hearth/prompt_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth::cli {
namespace {

TEST(PromptBench, ListsOfTokensAreRead) {
  EXPECT_THAT(*ParsePromptList("256,1024"), testing::ElementsAre(256u, 1024u));
  EXPECT_THAT(*ParsePromptList(""), testing::IsEmpty());
  for (const char* const text : {"0", "many", "256,", "2000000", "-1"}) {
    EXPECT_EQ(ParsePromptList(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(PromptBench, TheFloorOfALayerIsItsBytesOrTheCardsOperations) {
  LedgerCounts layer;
  layer.of(Service::kVram) = {.distinct = 2, .entries = 30, .bytes = 3000};
  layer.of(Service::kPcie) = {.distinct = 1, .entries = 10, .bytes = 1000};
  layer.of(Service::kCpu) = {.distinct = 1, .entries = 50, .bytes = 500};
  const MemoryRates rates{.dram = 1e9, .card = 1000, .link = 1e9};
  EXPECT_DOUBLE_EQ(PromptExpertFloorSec(layer, rates, 100, 1e9), 4.0);
  EXPECT_DOUBLE_EQ(PromptExpertFloorSec(layer, rates, 100, 500), 8.0);  // of 40 entries
  EXPECT_DOUBLE_EQ(PromptExpertFloorSec(layer, {.dram = 100}, 100, 500), 45.0) << "no card";
}

}  // namespace
}  // namespace hearth::cli
