// Readers around readers: counts, a slower drive, faults that a seed repeats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache/io/counting_reader.h"
#include "cache/io/faulty_reader.h"
#include "cache/io/limiting_reader.h"
#include "cache/io/memory_reader.h"
#include "cache/io/open_reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "tests/cache/io/reader_testing.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class DecoratorsTest : public testing::Test {
 protected:
  DecoratorsTest()
      : bytes_(RandomBytes(1, 100 * kBlockBytes + 9000)),
        memory_(*AnonymousMapping::Create(4 << 20)) {}

  std::unique_ptr<Reader> Inner(uint32_t in_flight_max = 16) {
    return std::move(*OpenMemoryReader(bytes_, {.in_flight_max = in_flight_max, .clock = clock_}));
  }
  std::vector<ReadRequest> Blocks(size_t count) {
    std::vector<ReadRequest> requests;
    for (uint64_t i = 0; i < count; ++i) {
      requests.push_back(
          {i * kBlockBytes, memory_.data().subspan(i * kBlockBytes, kBlockBytes), i});
    }
    return requests;
  }
  static bool IsRight(std::span<const std::byte> file, const ReadRequest& request) {
    const auto want = Wanted(file, request);
    return std::equal(want.begin(), want.end(), request.into.begin());
  }

  FakeClock clock_;
  std::vector<std::byte> bytes_;
  AnonymousMapping memory_;
  std::vector<ReadCompletion> done_{16};
};

TEST_F(DecoratorsTest, CountsReadsBytesFailuresAndTheTimeWithAReadInFlight) {
  CountingReader reader(Inner(), clock_);
  std::vector<ReadRequest> requests = Blocks(3);
  requests[2].offset_bytes = uint64_t{1} << 40;           // past the end
  for (ReadRequest& request : requests) request.tag = 7;  // tags need not differ
  clock_.Advance(1000);
  ASSERT_EQ(*reader.Submit(std::span(requests).first(1)), 1u);
  clock_.Advance(10);
  ASSERT_EQ(*reader.Submit(std::span(requests).subspan(1)), 2u);
  EXPECT_EQ(reader.counts().busy_ns, 10);
  clock_.Advance(5);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(*reader.Wait(std::span(done_).first(1), kPatienceNs), 1u);
    EXPECT_EQ(done_[0].tag, 7u);
    clock_.Advance(1);
  }
  clock_.Advance(500);
  EXPECT_EQ(*reader.Wait(done_, 0), 0u);
  const ReadCounts counts = reader.counts();
  EXPECT_EQ(counts.read_count, 2u);
  EXPECT_EQ(counts.read_bytes, 2 * kBlockBytes);
  EXPECT_EQ(counts.failed_count, 1u);
  EXPECT_EQ(counts.busy_ns, 17);
}

TEST_F(DecoratorsTest, CountingChangesNothing) {
  CountingReader reader(Inner(5), clock_);
  Prng prng(3);
  const auto requests = RandomRequests(prng, bytes_.size(), memory_.data(), 70);
  ExpectAllRead(reader, bytes_, requests);
  EXPECT_EQ(reader.counts().read_count, 70u);
}

TEST_F(DecoratorsTest, ALimitedReaderAnswersAtTheGivenRateInOrder) {
  LimitingReader reader(Inner(), {.bytes_per_sec = 4096 * 1000}, clock_);  // a block a millisecond
  ASSERT_EQ(*reader.Submit(Blocks(3)), 3u);
  EXPECT_EQ(*reader.Wait(done_, 0), 0u);
  for (uint64_t i = 0; i < 3; ++i) {
    clock_.Advance(999'999);
    EXPECT_EQ(*reader.Wait(done_, 0), 0u);
    clock_.Advance(1);
    ASSERT_EQ(*reader.Wait(done_, 0), 1u);
    EXPECT_EQ(done_[0].tag, i);
    EXPECT_EQ(done_[0].latency_ns, static_cast<int64_t>(i + 1) * 1'000'000);
  }
}

TEST_F(DecoratorsTest, AnIdleDriveSavesUpNothing) {
  LimitingReader reader(Inner(), {.bytes_per_sec = 4096 * 1000}, clock_);
  clock_.Advance(1'000'000'000);
  ASSERT_EQ(*reader.Submit(Blocks(2)), 2u);
  clock_.Advance(1'000'000);
  EXPECT_EQ(*reader.Wait(done_, 0), 1u);
}

TEST_F(DecoratorsTest, AWaitSleepsUntilAReadIsDue) {
  SteadyClock clock;
  LimitingReader reader(Inner(), {.bytes_per_sec = 4096 * 100}, clock);  // 10 ms for a block
  const int64_t start_ns = clock.NowNs();
  ASSERT_EQ(*reader.Submit(Blocks(2)), 2u);
  for (size_t completed = 0; completed < 2;) {
    const size_t n = *reader.Wait(done_, kPatienceNs);
    ASSERT_GT(n, 0u);
    completed += n;
  }
  EXPECT_GE(clock.NowNs() - start_ns, 20'000'000);
}

TEST_F(DecoratorsTest, ALimitOfReadsInFlightIsKept) {
  LimitingReader reader(Inner(8), {.in_flight_max = 3}, clock_);
  EXPECT_EQ(reader.traits().in_flight_max, 3u);
  EXPECT_EQ(reader.traits().kind, "memory");
  EXPECT_EQ(*reader.Submit(Blocks(5)), 3u);
  EXPECT_EQ(*reader.Submit(Blocks(5)), 0u);
  EXPECT_EQ(*reader.Wait(done_, 0), 3u);
  EXPECT_EQ(LimitingReader(Inner(8), {.in_flight_max = 99}, clock_).traits().in_flight_max, 8u);
}

TEST_F(DecoratorsTest, AStillClockEndsAWaitAfterItsTimeout) {
  LimitingReader reader(Inner(), {.bytes_per_sec = 1}, clock_);
  ASSERT_EQ(*reader.Submit(Blocks(1)), 1u);
  EXPECT_EQ(*reader.Wait(done_, 5'000'000), 0u);
}

TEST_F(DecoratorsTest, WakesReachAHeldRead) {
  LimitingReader reader(Inner(), {.bytes_per_sec = 1}, clock_);
  ASSERT_EQ(*reader.Submit(Blocks(1)), 1u);
  for (int i = 0; i < 20; ++i) {
    std::thread waker([&] { reader.Wake(); });
    EXPECT_EQ(*reader.Wait(done_, kPatienceNs), 0u);
    waker.join();
  }
}

TEST_F(DecoratorsTest, WithoutFaultsAFaultyReaderIsAnyReader) {
  FaultyReader reader(Inner(7), 1, {}, clock_);
  Prng prng(4);
  ExpectAllRead(reader, bytes_, RandomRequests(prng, bytes_.size(), memory_.data(), 60));
}

TEST_F(DecoratorsTest, ErrorsNameTheReadAndLeaveItsMemoryAlone) {
  FaultyReader reader(Inner(), 1, {.io_error = 1}, clock_);
  std::ranges::fill(memory_.data(), std::byte{0x77});
  for (const absl::Status& status : RunAll(reader, Blocks(4)).statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("wanted 4096 bytes, got 0: Input/output"));
  }
  EXPECT_TRUE(
      std::ranges::all_of(memory_.data(), [](std::byte b) { return b == std::byte{0x77}; }));
}

TEST_F(DecoratorsTest, AnErrorLeavesTheOtherReadsWhole) {
  FaultyReader reader(Inner(8), 9, {.io_error = 0.3, .short_read = 0.5, .reorder_count = 4},
                      clock_);
  Prng prng(8);
  const auto requests = RandomRequests(prng, bytes_.size(), memory_.data(), 100);
  const RunResult result = RunAll(reader, requests);
  size_t failed_count = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    failed_count += result.statuses[i].ok() ? 0 : 1;
    if (result.statuses[i].ok()) {
      EXPECT_TRUE(IsRight(bytes_, requests[i])) << i;
    }
  }
  EXPECT_GT(failed_count, 15u);
  EXPECT_LT(failed_count, 45u);
}

TEST_F(DecoratorsTest, ReadsInTwoPartsAreWhole) {
  auto counting = std::make_unique<CountingReader>(Inner(8), clock_);
  CountingReader* const counts = counting.get();
  FaultyReader reader(std::move(counting), 2, {.short_read = 1}, clock_);
  Prng prng(5);
  const auto requests = RandomRequests(prng, bytes_.size(), memory_.data(), 60);
  ExpectAllRead(reader, bytes_, requests);
  const auto longer_count = static_cast<uint64_t>(std::ranges::count_if(
      requests, [](const ReadRequest& r) { return r.into.size() > kBlockBytes; }));
  EXPECT_EQ(counts->counts().read_count, requests.size() + longer_count);
}

TEST_F(DecoratorsTest, AFlippedBitIsOneBit) {
  FaultyReader reader(Inner(), 3, {.bit_flip = 1}, clock_);
  const auto requests = Blocks(8);
  const RunResult result = RunAll(reader, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(result.statuses[i].ok());
    int wrong_bits = 0;
    for (size_t b = 0; b < kBlockBytes; ++b) {
      wrong_bits += std::popcount(
          static_cast<uint8_t>(requests[i].into[b] ^ bytes_[requests[i].offset_bytes + b]));
    }
    EXPECT_EQ(wrong_bits, 1) << i;
  }
}

TEST_F(DecoratorsTest, TheSeedAloneDecidesOrderAndFaults) {
  const FaultRates rates = {.io_error = 0.1, .short_read = 0.3, .reorder_count = 6};
  const auto run = [&](uint64_t seed) {
    FaultyReader reader(Inner(12), seed, rates, clock_);
    const RunResult result = RunAll(reader, Blocks(90));
    std::string trace;
    for (const uint64_t tag : result.order) {
      trace += std::to_string(tag) + (result.statuses[tag].ok() ? " " : "! ");
    }
    return trace;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST_F(DecoratorsTest, CompletionsComeOutOfOrder) {
  FaultyReader reader(Inner(16), 1, {.reorder_count = 8}, clock_);
  const RunResult result = RunAll(reader, Blocks(60));
  EXPECT_FALSE(std::ranges::is_sorted(result.order));
}

TEST_F(DecoratorsTest, DelayedReadsWaitForTheClock) {
  FaultyReader reader(Inner(), 4, {.delay = 1, .delay_ns_max = 1000}, clock_);
  ASSERT_EQ(*reader.Submit(Blocks(8)), 8u);
  size_t completed = 0;
  for (int step = 0; step < 10; ++step) {
    clock_.Advance(100);
    const size_t n = *reader.Wait(done_, 0);
    for (size_t i = 0; i < n; ++i) EXPECT_LE(done_[i].latency_ns, 1000);
    EXPECT_LT(n, 8u);  // not all at once
    completed += n;
  }
  EXPECT_EQ(completed, 8u);
}

TEST_F(DecoratorsTest, FaultsOverAFileReadByUringAndPreadLeaveGoodReadsWhole) {
  SteadyClock clock;
  const RandomFile file("faulty", 200 * kBlockBytes + 9000);
  for (const IoChoice choice : {IoChoice::kAuto, IoChoice::kPread}) {
    const FaultRates rates = {.io_error = 0.1,
                              .short_read = 0.4,
                              .delay = 0.2,
                              .delay_ns_max = 300'000,
                              .reorder_count = 3};
    FaultyReader reader(
        std::move(*OpenReader(
            file.path(),
            {.choice = choice, .in_flight_max = 8, .buffers = memory_.data(), .clock = clock})),
        11, rates, clock);
    Prng prng(12);
    const auto requests = RandomRequests(prng, file.bytes().size(), memory_.data(), 100);
    const RunResult result = RunAll(reader, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (result.statuses[i].ok()) {
        EXPECT_TRUE(IsRight(file.bytes(), requests[i])) << i;
      }
    }
  }
}

}  // namespace
}  // namespace hearth
