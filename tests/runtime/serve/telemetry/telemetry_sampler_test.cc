// Rates are what came in between two looks, over the last ten seconds; the past is kept second by
// second and bounded; a restart shows as another start id and counters from 0. FAULTS.md B38.
#include "runtime/serve/telemetry/telemetry_sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/serve/telemetry/telemetry_json.h"
#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

EngineCounts CountsOf(uint64_t output_tokens, uint64_t vram, uint64_t cpu) {
  EngineCounts counts;
  counts.layers.resize(2);
  counts.serve.output_tokens = output_tokens;
  counts.layers[0].of(Service::kVram) = {.distinct = vram, .bytes = vram * 100};
  counts.layers[1].of(Service::kCpu) = {.distinct = cpu, .bytes = cpu * 100};
  return counts;
}

TelemetrySnapshot Described(const TelemetryHistory& history) {
  TelemetrySnapshot s;
  history.Describe(s);
  return s;
}

TEST(TelemetryHistory, OneLookTellsNoRate) {
  TelemetryHistory history(true);
  EXPECT_EQ(Described(history).recent.span_ns, 0);
  history.Add(5 * kSecond, CountsOf(100, 1, 1));
  EXPECT_EQ(Described(history).recent.span_ns, 0);
  EXPECT_TRUE(Described(history).history.empty());
}

TEST(TelemetryHistory, WhatWasThereBeforeTheFirstLookIsNoRate) {
  TelemetryHistory history(true);
  history.Add(0, CountsOf(1'000'000, 7, 7));
  history.Add(kSecond, CountsOf(1'000'050, 10, 8));
  const TelemetrySnapshot s = Described(history);
  EXPECT_EQ(s.recent.output_tokens, 50u);
  EXPECT_EQ(s.recent.span_ns, kSecond);
  ASSERT_EQ(s.history.size(), 1u);
  EXPECT_FLOAT_EQ(s.history[0].output_tokens_per_sec, 50);
  EXPECT_FLOAT_EQ(s.history[0].vram_share, 0.75F);
  EXPECT_EQ(s.recent.total().of(Service::kVram).distinct, 3u);
}

TEST(TelemetryHistory, RecentIsTheLastTenSeconds) {
  TelemetryHistory history(true);
  for (int64_t t = 0; t <= 30; ++t) {
    history.Add(t * kSecond, CountsOf(static_cast<uint64_t>(t < 20 ? 0 : t - 20), 0, 0));
  }
  const TelemetrySnapshot s = Described(history);
  EXPECT_EQ(s.recent.span_ns, 10 * kSecond);
  EXPECT_EQ(s.recent.output_tokens, 10u);
}

TEST(TelemetryHistory, IdleSecondsBringTheRateDownToZero) {
  TelemetryHistory history(true);
  history.Add(0, CountsOf(0, 0, 0));
  for (int64_t t = 1; t <= 12; ++t) history.Add(t * kSecond, CountsOf(500, 5, 5));
  const TelemetrySnapshot s = Described(history);
  EXPECT_EQ(s.recent.output_tokens, 0u);
  EXPECT_FLOAT_EQ(s.history.front().output_tokens_per_sec, 500);
  EXPECT_FLOAT_EQ(s.history.back().output_tokens_per_sec, 0);
  EXPECT_LT(s.history.back().vram_share, 0);  // no experts, no share
}

TEST(TelemetryHistory, AClockThatStandsStillIsNoDivisionByZero) {
  TelemetryHistory history(true);
  history.Add(kSecond, CountsOf(0, 0, 0));
  history.Add(kSecond, CountsOf(10, 0, 0));
  history.Add(kSecond / 2, CountsOf(20, 0, 0));
  EXPECT_TRUE(Described(history).history.empty());
  EXPECT_EQ(Described(history).recent.span_ns, 0);
}

TEST(TelemetryHistory, ThePastIsBoundedAndInOrder) {
  TelemetryHistory history(true);
  uint64_t tokens = 0;
  for (int64_t t = 0; t < 1000; ++t) {
    tokens += static_cast<uint64_t>(t);
    history.Add(t * kSecond, CountsOf(tokens, 0, 0));
  }
  const TelemetrySnapshot s = Described(history);
  ASSERT_EQ(s.history.size(), kHistoryPointsMax);
  for (size_t i = 0; i < s.history.size(); ++i) {
    EXPECT_FLOAT_EQ(s.history[i].output_tokens_per_sec,
                    static_cast<float>(1000 - kHistoryPointsMax + i));
  }
}

TEST(TelemetryHistory, PeaksAreOfTheBestSecond) {
  TelemetryHistory history(true);
  history.Add(0, CountsOf(0, 0, 0));
  history.Add(kSecond, CountsOf(0, 50, 20));
  history.Add(2 * kSecond, CountsOf(0, 60, 20));
  const TelemetrySnapshot s = Described(history);
  EXPECT_DOUBLE_EQ(s.peak_bytes_per_sec[static_cast<size_t>(Channel::kCard)], 5000);
  EXPECT_DOUBLE_EQ(s.peak_bytes_per_sec[static_cast<size_t>(Channel::kDram)], 2000);
}

TEST(ChannelBytes, WithoutACardSlotsAreMemoryToo) {
  EngineCounts counts = CountsOf(0, 3, 2);
  counts.layers[0].of(Service::kPcie).bytes = 7;
  counts.slots.swap_bytes = 1000;
  counts.dense_bytes = 10'000;
  EXPECT_EQ(ChannelBytes(counts, Channel::kCard, true), 300u + 7 + 10'000);
  EXPECT_EQ(ChannelBytes(counts, Channel::kLink, true), 1007u);
  EXPECT_EQ(ChannelBytes(counts, Channel::kDram, true), 207u);
  EXPECT_EQ(ChannelBytes(counts, Channel::kCard, false), 0u);
  EXPECT_EQ(ChannelBytes(counts, Channel::kLink, false), 0u);
  EXPECT_EQ(ChannelBytes(counts, Channel::kDram, false), 300u + 200 + 7 + 10'000);
}

TEST(TelemetrySampler, ARestartShows) {
  FakeClock clock;
  TelemetryBoard board;
  board.Publish(CountsOf(100, 1, 1));
  const TelemetrySampler before({.board = board, .clock = clock}, {.start_id = "a"});
  clock.Advance(60 * kSecond);
  EXPECT_EQ(before.Snapshot().uptime_ns, 60 * kSecond);
  TelemetryBoard fresh;
  const TelemetrySampler after({.board = fresh, .clock = clock}, {.start_id = "b"});
  const TelemetrySnapshot s = after.Snapshot();
  EXPECT_NE(s.facts.start_id, before.Snapshot().facts.start_id);
  EXPECT_EQ(s.uptime_ns, 0);
  EXPECT_EQ(s.engine.serve.output_tokens, 0u);
}

TEST(TelemetrySampler, OtherSourcesAreAsked) {
  FakeClock clock;
  TelemetryBoard board;
  TelemetrySampler sampler({.board = board,
                            .clock = clock,
                            .serve = [] { return ServeCounters{.queued = 5}; },
                            .http = [] { return HttpCounters{.connections = 3}; },
                            .process = [] { return ProcessUse{.ram_bytes = 77}; }},
                           {});
  EXPECT_EQ(sampler.Snapshot().process.ram_bytes, std::nullopt);
  sampler.Sample();
  EXPECT_EQ(sampler.Snapshot().process.ram_bytes, 77u);
  EXPECT_EQ(sampler.Snapshot().http.connections, 3u);
  EXPECT_EQ(sampler.Snapshot().engine.serve.queued, 5u);
}

TEST(ReadProcessUse, KnowsThisProcess) {
  const ProcessUse use = ReadProcessUse();
  ASSERT_TRUE(use.ram_bytes.has_value());
  EXPECT_GT(*use.ram_bytes, 100'000u);
}

TEST(TelemetrySampler, PolledFromTheStartUnderLoadItIsAlwaysJson) {
  SteadyClock clock;
  TelemetryBoard board;
  TelemetrySampler sampler({.board = board, .clock = clock, .process = ReadProcessUse}, {});
  sampler.Start();
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    uint64_t n = 0;
    while (!stop) board.Publish(CountsOf(n, n, n)), ++n;
  });
  for (int i = 0; i < 1000; ++i) {
    const TelemetrySnapshot s = sampler.Snapshot();
    // Counts of one moment: never half of one and half of the next.
    ASSERT_EQ(s.engine.serve.output_tokens, s.engine.total().of(Service::kCpu).distinct);
    if (i % 50 == 0) {
      ASSERT_TRUE(ParseTelemetry(TelemetryJson(s)).ok());
    }
  }
  stop = true;
  engine.join();
}

}  // namespace
}  // namespace hearth
