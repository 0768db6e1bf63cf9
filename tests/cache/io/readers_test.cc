// What every reader promises, over io_uring, pread threads and memory alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cache/io/memory_reader.h"
#include "cache/io/open_reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "tests/cache/io/reader_testing.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMemoryBytes = 4 << 20;
constexpr int64_t kMillisecondNs = 1'000'000;

struct ReaderCase {
  std::string name;
  IoChoice choice = IoChoice::kAuto;
  bool is_memory = false;
  bool direct = true;
  bool registered = false;
  uint64_t attempt_bytes_max = 0;
};

const std::vector<ReaderCase>& AllReaders() {
  static const std::vector<ReaderCase> cases = {
      {.name = "Memory", .is_memory = true, .direct = false},
      {.name = "Pread", .choice = IoChoice::kPread},
      {.name = "PreadBuffered", .choice = IoChoice::kPread, .direct = false},
      {.name = "PreadInPieces", .choice = IoChoice::kPread, .attempt_bytes_max = 2 * kBlockBytes},
      {.name = "Uring", .choice = IoChoice::kUring},
      {.name = "UringRegistered", .choice = IoChoice::kUring, .registered = true},
      {.name = "UringBuffered", .choice = IoChoice::kUring, .direct = false},
      {.name = "UringBufferedRegistered",
       .choice = IoChoice::kUring,
       .direct = false,
       .registered = true},
      {.name = "UringInPieces",
       .choice = IoChoice::kUring,
       .registered = true,
       .attempt_bytes_max = kBlockBytes},
      {.name = "Auto", .choice = IoChoice::kAuto, .registered = true},
  };
  return cases;
}

class ReadersTest : public testing::TestWithParam<ReaderCase> {
 protected:
  static void SetUpTestSuite() {
    // An odd number of blocks, and an end inside a block.
    file_ = new RandomFile("readers", 321 * kBlockBytes + 9000);
    memory_ = new AnonymousMapping(*AnonymousMapping::Create(kMemoryBytes));
  }
  static void TearDownTestSuite() {
    delete file_;
    delete memory_;
  }

  absl::StatusOr<std::unique_ptr<Reader>> TryOpen(const std::string& path, uint32_t in_flight_max) {
    const ReaderCase& c = GetParam();
    ReaderOptions options = {.choice = c.choice,
                             .in_flight_max = in_flight_max,
                             .direct = c.direct,
                             .attempt_bytes_max = c.attempt_bytes_max,
                             .clock = clock_};
    if (c.registered) options.buffers = memory_->data();
    return OpenReader(path, options);
  }

  std::unique_ptr<Reader> Open(uint32_t in_flight_max) {
    if (GetParam().is_memory) {
      return std::move(
          *OpenMemoryReader(file_->bytes(), {.in_flight_max = in_flight_max, .clock = clock_}));
    }
    auto reader = TryOpen(file_->path(), in_flight_max);
    HEARTH_CHECK(reader.ok());
    return std::move(*reader);
  }

  // One read from the beginning of the file; its status.
  absl::Status ReadOne(Reader& reader, uint64_t offset_bytes, uint64_t begin, uint64_t length) {
    const ReadRequest request = {.offset_bytes = offset_bytes,
                                 .into = memory_->data().subspan(begin, length)};
    return RunAll(reader, {&request, 1}).statuses[0];
  }

  static inline RandomFile* file_ = nullptr;
  static inline AnonymousMapping* memory_ = nullptr;
  SteadyClock clock_;
};

INSTANTIATE_TEST_SUITE_P(All, ReadersTest, testing::ValuesIn(AllReaders()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ReadersTest, RandomRequestsBringTheBytesOfTheFileAtEveryDepth) {
  for (const uint32_t depth : {1u, 2u, 3u, 8u, 31u, 64u}) {
    const auto reader = Open(depth);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Prng prng(seed * 100 + depth);
      std::ranges::fill(memory_->data(), std::byte{0xEE});
      const auto requests =
          RandomRequests(prng, file_->bytes().size(), memory_->data(), 10 + prng.Below(90));
      ExpectAllRead(*reader, file_->bytes(), requests);
    }
  }
}

TEST_P(ReadersTest, RecordsOfOddBlockCountsSplitOverSeveralRequestsAreWhole) {
  constexpr uint64_t kRecordBytes = 7 * kBlockBytes;
  const auto reader = Open(8);
  for (const uint64_t first_blocks : {1, 3, 6}) {
    std::vector<ReadRequest> requests;
    for (uint64_t record = 0; record < 20; ++record) {
      const uint64_t begin = record * kRecordBytes;
      const uint64_t cut_bytes = first_blocks * kBlockBytes;
      const auto into = memory_->data().subspan(begin, kRecordBytes);
      requests.push_back({begin, into.first(cut_bytes), requests.size()});
      requests.push_back({begin + cut_bytes, into.subspan(cut_bytes), requests.size()});
    }
    ExpectAllRead(*reader, file_->bytes(), requests);
  }
}

TEST_P(ReadersTest, ARequestMayRunPastTheEndByLessThanABlock) {
  const auto reader = Open(4);
  const uint64_t file_bytes = file_->bytes().size();
  const uint64_t begin = file_bytes / kBlockBytes * kBlockBytes - 2 * kBlockBytes;
  const ReadRequest request = {.offset_bytes = begin,
                               .into = memory_->data().first(RoundUpToBlock(file_bytes) - begin)};
  ExpectAllRead(*reader, file_->bytes(), {&request, 1});
}

TEST_P(ReadersTest, FurtherPastTheEndIsOutOfRangeAndNamesOffsetWantedAndGot) {
  const auto reader = Open(4);
  const uint64_t end = RoundUpToBlock(file_->bytes().size());
  for (const uint64_t offset_bytes : {end - kBlockBytes, end, end + (uint64_t{1} << 40)}) {
    const absl::Status status = ReadOne(*reader, offset_bytes, 0, 2 * kBlockBytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("read at ", offset_bytes, ": wanted 8192 bytes, got ")));
  }
  EXPECT_TRUE(ReadOne(*reader, 0, 0, kBlockBytes).ok());  // the reader lives on
}

TEST_P(ReadersTest, MisalignedRequestsAreRefusedOneByOneOrReadRight) {
  const auto reader = Open(4);
  struct Case {
    uint64_t offset_bytes, begin, length_bytes;
  };
  for (const Case& c : {Case{100, 0, kBlockBytes}, Case{0, 64, kBlockBytes}, Case{0, 0, 1000}}) {
    const ReadRequest request = {.offset_bytes = c.offset_bytes,
                                 .into = memory_->data().subspan(c.begin, c.length_bytes)};
    const absl::Status status = RunAll(*reader, {&request, 1}).statuses[0];
    if (reader->traits().align_bytes > 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    } else {
      ASSERT_TRUE(status.ok()) << status;
      const auto want = Wanted(file_->bytes(), request);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), request.into.begin()));
    }
  }
  EXPECT_TRUE(ReadOne(*reader, 0, 0, kBlockBytes).ok());
}

TEST_P(ReadersTest, TraitsSayHowItReads) {
  const ReaderCase& c = GetParam();
  const auto reader = Open(9);
  const ReaderTraits& traits = reader->traits();
  EXPECT_EQ(traits.in_flight_max, 9u);
  EXPECT_EQ(traits.registered, c.registered);
  EXPECT_EQ(traits.direct, c.direct);
  EXPECT_EQ(traits.align_bytes, c.direct ? kBlockBytes : 1);
  EXPECT_EQ(traits.kind, c.is_memory ? "memory" : c.choice == IoChoice::kPread ? "pread" : "uring");
  EXPECT_THAT(traits.notes, testing::IsEmpty());
}

TEST_P(ReadersTest, SubmitTakesWhatThereIsRoomFor) {
  const auto reader = Open(3);
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < 5; ++i) {
    requests.push_back({i * kBlockBytes, memory_->data().subspan(i * kBlockBytes, kBlockBytes), i});
  }
  EXPECT_EQ(*reader->Submit(requests), 3u);
  EXPECT_EQ(*reader->Submit(requests), 0u);
  EXPECT_EQ(reader->in_flight(), 3u);
  std::vector<ReadCompletion> done(1);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(*reader->Wait(done, kPatienceNs), 1u);
  EXPECT_EQ(reader->in_flight(), 0u);
  EXPECT_GE(done[0].latency_ns, 0);
}

TEST_P(ReadersTest, AnEmptyRequestCompletes) {
  const auto reader = Open(2);
  EXPECT_TRUE(ReadOne(*reader, 0, 0, 0).ok());
}

TEST_P(ReadersTest, AWaitWithNothingInFlightEndsWithItsTimeout) {
  const auto reader = Open(2);
  std::vector<ReadCompletion> done(2);
  EXPECT_EQ(*reader->Wait(done, 0), 0u);
  const int64_t start_ns = clock_.NowNs();
  EXPECT_EQ(*reader->Wait(done, 20 * kMillisecondNs), 0u);
  EXPECT_GE(clock_.NowNs() - start_ns, 19 * kMillisecondNs);
}

TEST_P(ReadersTest, AWakeBeforeTheWaitIsNotLostAndCountsOnce) {
  const auto reader = Open(2);
  std::vector<ReadCompletion> done(2);
  for (int round = 0; round < 3; ++round) {
    reader->Wake();
    reader->Wake();
    const int64_t start_ns = clock_.NowNs();
    ASSERT_EQ(*reader->Wait(done, kPatienceNs), 0u);
    EXPECT_LT(clock_.NowNs() - start_ns, kPatienceNs / 2);
    EXPECT_EQ(*reader->Wait(done, 0), 0u);
  }
}

TEST_P(ReadersTest, AnotherThreadWakesAWait) {
  const auto reader = Open(2);
  std::vector<ReadCompletion> done(2);
  for (int round = 0; round < 20; ++round) {
    std::thread waker([&] { reader->Wake(); });
    const int64_t start_ns = clock_.NowNs();
    EXPECT_EQ(*reader->Wait(done, kPatienceNs), 0u);
    EXPECT_LT(clock_.NowNs() - start_ns, kPatienceNs / 2);
    waker.join();
  }
}

TEST_P(ReadersTest, WakesWhileReadsAreUnderWayLoseNoRead) {
  const auto reader = Open(8);
  std::atomic<bool> stop = false;
  std::thread waker([&] {
    while (!stop.load()) {
      reader->Wake();
      std::this_thread::yield();
    }
  });
  Prng prng(5);
  const auto requests = RandomRequests(prng, file_->bytes().size(), memory_->data(), 60);
  std::vector<ReadCompletion> done(4);
  size_t sent = 0;
  size_t completed = 0;
  const int64_t start_ns = clock_.NowNs();
  while (completed < requests.size() && clock_.NowNs() - start_ns < kPatienceNs) {
    sent += *reader->Submit(std::span(requests).subspan(sent));
    completed += *reader->Wait(done, kPatienceNs);
  }
  stop = true;
  waker.join();
  EXPECT_EQ(completed, requests.size());
}

TEST_P(ReadersTest, AReaderMayBeUsedAndDestroyedByOtherThreads) {
  auto reader = Open(8);
  Prng prng(6);
  const auto requests = RandomRequests(prng, file_->bytes().size(), memory_->data(), 30);
  std::thread owner([&] {
    ExpectAllRead(*reader, file_->bytes(), requests);
    EXPECT_EQ(*reader->Submit(std::span(requests).first(8)), 8u);
  });
  owner.join();
  reader.reset();  // with reads in flight that a thread that is gone has submitted
}

TEST_P(ReadersTest, DestructionWaitsForTheReadsThatAreInFlight) {
  for (int round = 0; round < 20; ++round) {
    auto reader = Open(16);
    Prng prng(round);
    const auto requests = RandomRequests(prng, file_->bytes().size(), memory_->data(), 16);
    ASSERT_EQ(*reader->Submit(requests), 16u);
    reader.reset();
    // Nothing writes there any more.
    std::ranges::fill(memory_->data().first(1 << 20), std::byte{0x5A});
    EXPECT_TRUE(std::ranges::all_of(memory_->data().first(1 << 20),
                                    [](std::byte b) { return b == std::byte{0x5A}; }));
  }
}

TEST_P(ReadersTest, AFileThatBecomesShorterFailsTheReadsPastItsEndOnly) {
  if (GetParam().is_memory) GTEST_SKIP() << "memory does not become shorter";
  const RandomFile file("shrinks", 64 * kBlockBytes);
  auto reader = TryOpen(file.path(), 4);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ(::truncate(file.path().c_str(), 10 * kBlockBytes + 100), 0);
  EXPECT_TRUE(ReadOne(**reader, 0, 0, 8 * kBlockBytes).ok());
  for (const uint64_t first_block : {9, 10, 11, 40}) {
    const absl::Status status = ReadOne(**reader, first_block * kBlockBytes, 0, 4 * kBlockBytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the file ends there; it had 262144 bytes when it was opened"));
  }
}

TEST_P(ReadersTest, AnEmptyFileOpens) {
  if (GetParam().is_memory) GTEST_SKIP() << "about files";
  const RandomFile file("empty", 0);
  auto reader = TryOpen(file.path(), 4);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ReadOne(**reader, 0, 0, kBlockBytes).code(), absl::StatusCode::kOutOfRange);
}

TEST_P(ReadersTest, WhatIsNoRegularFileIsRefusedByName) {
  if (GetParam().is_memory) GTEST_SKIP() << "about files";
  const auto missing = TryOpen("/nowhere/pack", 4);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nowhere/pack"));
  EXPECT_EQ(TryOpen("/dev/null", 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TryOpen("/tmp", 4).status().code(), absl::StatusCode::kInvalidArgument);
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST_P(ReadersTest, ManyStartsAndStopsLeakNoDescriptor) {
  const size_t before_count = OpenDescriptors();
  const ReadRequest request = {.offset_bytes = 0, .into = memory_->data().first(kBlockBytes)};
  for (int i = 0; i < 300; ++i) {
    const auto reader = Open(4);
    if (i % 3 == 0) {
      EXPECT_EQ(*reader->Submit({&request, 1}), 1u);
    }
  }
  EXPECT_EQ(OpenDescriptors(), before_count);
}

TEST(OpenReaderTest, OptionsOutOfRangeAreRefusedByName) {
  SteadyClock clock;
  const RandomFile file("options", kBlockBytes);
  const auto memory = *AnonymousMapping::Create(2 * kBlockBytes);
  const auto expect_refused = [&](const ReaderOptions& options, const std::string& name) {
    const auto reader = OpenReader(file.path(), options);
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr(name));
  };
  expect_refused({.in_flight_max = 0, .clock = clock}, "in_flight_max");
  expect_refused({.in_flight_max = kReaderInFlightMax + 1, .clock = clock}, "in_flight_max");
  expect_refused({.pread_threads = 0, .clock = clock}, "pread_threads");
  expect_refused({.align_bytes = 3000, .clock = clock}, "align_bytes");
  expect_refused({.align_bytes = 0, .clock = clock}, "align_bytes");
  expect_refused({.attempt_bytes_max = 100, .clock = clock}, "attempt_bytes_max");
  expect_refused({.buffers = memory.data().subspan(64), .clock = clock}, "buffers");
}

TEST(MemoryReaderTest, OptionsOutOfRangeAreRefused) {
  SteadyClock clock;
  EXPECT_FALSE(OpenMemoryReader({}, {.in_flight_max = 0, .clock = clock}).ok());
  EXPECT_FALSE(OpenMemoryReader({}, {.align_bytes = 5, .clock = clock}).ok());
}

}  // namespace
}  // namespace hearth
