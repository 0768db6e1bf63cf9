// What a runner's experts did is what the board shows, at most ten times a second but always before
// the thread goes to sleep; publishing allocates nothing once it has been done.
#include "runtime/serve/telemetry/telemetry_board.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/serve/telemetry/telemetry_json.h"
#include "tests/support/allocation_count.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

class TelemetryBoardTest : public testing::Test {
 protected:
  static RunnerSetup SetupOfRunner() {
    ExpertOptions experts;
    experts.slots = SlotBudget{.share = 0.3};
    return {
        .options = {.limits = {.prompt_rows_max = 32, .window_rows_max = 4}, .experts = experts}};
  }
  void RunWindow(uint32_t rows) {
    const std::vector<TokenId> tokens(rows, 3);
    const Segment segment{.sequence = sequence_.get(), .tokens = tokens};
    ASSERT_TRUE(runner_->RunTrunk({&segment, 1}, Phase::kWindow).ok());
    ASSERT_TRUE(runner_->Commit(*sequence_, rows).ok());
  }

  TemporaryPack pack_{HashModel(), DenseChoice::kBf16};
  LoadedRunner runner_{pack_.dir(), SetupOfRunner()};
  std::unique_ptr<Sequence> sequence_ = *runner_->CreateSequence(128);
  TelemetryBoard board_;
};

TEST_F(TelemetryBoardTest, ShowsWhatTheTiersDid) {
  RunWindow(2);
  EngineCounts counts;
  ReadRunner(*runner_, counts);
  EXPECT_EQ(counts.total().services, runner_->experts().tiers().ledger().total().services);
  EXPECT_GT(counts.total().total().distinct, 0u);
  EXPECT_TRUE(counts.slots.present);
  EXPECT_EQ(counts.slots.used, runner_->experts().slots()->stats().resident_count);
  EXPECT_GT(counts.slots.slots, 0u);
  EXPECT_GT(counts.dense_bytes, 0u);
  EXPECT_EQ(counts.slots.recent_count, std::min<uint64_t>(counts.slots.swaps, kSwapsShownMax));
}

TEST_F(TelemetryBoardTest, IdlingAlwaysPublishes) {
  EngineTelemetry telemetry({.runner = *runner_, .board = board_});
  ServeCounters serve;
  serve.output_tokens = 1;
  telemetry.AfterRound(serve);  // the first is published
  EXPECT_EQ(board_.Read().serve.output_tokens, 1u);
  serve.output_tokens = 2;
  telemetry.BeforeIdle(serve);
  EXPECT_EQ(board_.Read().serve.output_tokens, 2u);
}

TEST_F(TelemetryBoardTest, PrefixesAreAskedOnTheWay) {
  EngineTelemetry telemetry({.runner = *runner_, .board = board_, .prefix = [] {
                               return PrefixCounters{.lookups = 9, .hits = 4};
                             }});
  telemetry.BeforeIdle({});
  EXPECT_EQ(board_.Read().prefix.hits, 4u);
}

TEST_F(TelemetryBoardTest, PublishingAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  EngineTelemetry telemetry({.runner = *runner_, .board = board_});
  const ServeCounters serve;
  RunWindow(2);
  telemetry.BeforeIdle(serve);
  RunWindow(2);
  const uint64_t before = AllocationCount();
  telemetry.BeforeRound();
  telemetry.AfterRound(serve);
  telemetry.BeforeIdle(serve);
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace hearth
