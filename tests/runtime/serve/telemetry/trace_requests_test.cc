// A trace that is asked for holds the rounds that follow, never more than were asked for; one at a
// time; nobody waits for ever, whether the server works, idles, hangs or stops.
#include "runtime/serve/telemetry/trace_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSoonNs = 20'000'000;
constexpr int64_t kLongNs = 60'000'000'000;

class TraceRequestsTest : public testing::Test {
 protected:
  void RunRound() {
    traces_.BeforeRound(*runner_);
    const std::vector<TokenId> tokens(2, 3);
    const Segment segment{.sequence = sequence_.get(), .tokens = tokens};
    ASSERT_TRUE(runner_->RunTrunk({&segment, 1}, Phase::kWindow).ok());
    ASSERT_TRUE(runner_->Commit(*sequence_, 0).ok());
    traces_.AfterRound(*runner_);
  }
  // Rounds on a thread of their own until stop().
  void Work(bool idles) {
    engine_ = std::thread([this, idles] {
      while (!stop_) {
        RunRound();
        if (idles) traces_.BeforeIdle(*runner_);
      }
    });
  }
  void StopWork() {
    stop_ = true;
    if (engine_.joinable()) engine_.join();
  }
  ~TraceRequestsTest() override { StopWork(); }

  TemporaryPack pack_{HashModel(), DenseChoice::kBf16};
  LoadedRunner runner_{pack_.dir(),
                       {.options = {.limits = {.prompt_rows_max = 32, .window_rows_max = 4}}}};
  std::unique_ptr<Sequence> sequence_ = *runner_->CreateSequence(128);
  TraceRequests traces_;
  std::atomic<bool> stop_{false};
  std::thread engine_;
};

uint64_t SpanCount(const std::string& text) {
  const nlohmann::json trace = nlohmann::json::parse(text);
  uint64_t spans = 0;
  for (const auto& event : trace.at("traceEvents")) spans += event.at("ph") == "X";
  return spans;
}

TEST_F(TraceRequestsTest, HoldsAsManyRoundsAsWereAskedFor) {
  Work(false);
  const auto one = traces_.Take({.windows = 1, .wait_ns = kLongNs});
  const auto four = traces_.Take({.windows = 4, .wait_ns = kLongNs});
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_THAT(*one, HasSubstr("hearth serve, 1 window"));
  EXPECT_THAT(*four, HasSubstr("hearth serve, 4 windows"));
  EXPECT_GT(SpanCount(*one), 0u);
  EXPECT_GT(SpanCount(*four), 2 * SpanCount(*one));
}

TEST_F(TraceRequestsTest, ATraceEndsWhereTheServerRunsOutOfWork) {
  Work(true);
  const auto trace = traces_.Take({.windows = 64, .wait_ns = kLongNs});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(*trace, HasSubstr("hearth serve, 1 window\""));
}

TEST_F(TraceRequestsTest, WithoutARoundItIsLateAndTheNextOneWorks) {
  EXPECT_EQ(traces_.Take({.windows = 1, .wait_ns = kSoonNs}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  Work(false);
  EXPECT_TRUE(traces_.Take({.windows = 1, .wait_ns = kLongNs}).ok());
}

TEST_F(TraceRequestsTest, APassThatDoesNotEndIsGivenUpAndTidiesUpLater) {
  std::atomic<bool> is_over{false};
  std::thread asker([&] {
    const absl::Status late = traces_.Take({.windows = 1, .wait_ns = 200'000'000}).status();
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(late.message()), HasSubstr("a pass did not end"));
    is_over = true;
  });
  while (!is_over) {  // begins at the first call after the order
    traces_.BeforeRound(*runner_);
    std::this_thread::yield();
  }
  asker.join();
  EXPECT_EQ(traces_.Take({.windows = 1, .wait_ns = kSoonNs}).status().code(),
            absl::StatusCode::kResourceExhausted);
  traces_.AfterRound(*runner_);
  Work(false);
  EXPECT_TRUE(traces_.Take({.windows = 1, .wait_ns = kLongNs}).ok());
}

TEST_F(TraceRequestsTest, OrdersBeyondTheLimitsAreRefused) {
  EXPECT_THAT(std::string(traces_.Take({.windows = 0}).status().message()),
              HasSubstr("windows: from 1 to 64, found 0"));
  EXPECT_FALSE(traces_.Take({.windows = 65}).ok());
  EXPECT_FALSE(traces_.Take({.wait_ns = 0}).ok());
  EXPECT_FALSE(traces_.Take({.wait_ns = kTraceWaitMaxNs + 1}).ok());
}

TEST_F(TraceRequestsTest, StoppingLetsEverybodyGo) {
  std::thread asker([this] {
    EXPECT_EQ(traces_.Take({.windows = 1, .wait_ns = kLongNs}).status().code(),
              absl::StatusCode::kUnavailable);
  });
  traces_.Stop();
  asker.join();
  EXPECT_EQ(traces_.Take({.windows = 1, .wait_ns = kLongNs}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hearth
