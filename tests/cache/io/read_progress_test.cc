// What becomes of a request while the kernel answers it in pieces.
#include "cache/io/read_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "runtime/base/file.h"
#include "tests/cache/io/reader_testing.h"

namespace hearth {
namespace {

using Next = ReadProgress::Next;
using testing::HasSubstr;

class ReadProgressTest : public testing::Test {
 protected:
  ReadProgressTest() : memory_(*AnonymousMapping::Create(16 * kBlockBytes)) {}

  ReadProgress Make(uint64_t offset_bytes, uint64_t length_bytes, ReadBounds bounds) {
    return ReadProgress({.offset_bytes = offset_bytes, .into = memory_.data().first(length_bytes)},
                        bounds);
  }
  static ReadBounds Direct(uint64_t file_bytes) {
    return {.file_bytes = file_bytes, .align_bytes = kBlockBytes, .direct = true};
  }
  static ReadBounds Buffered(uint64_t file_bytes) {
    return {.file_bytes = file_bytes, .align_bytes = kBlockBytes, .direct = false};
  }

  AnonymousMapping memory_;
};

TEST_F(ReadProgressTest, AnEmptyRequestIsDoneAtOnce) {
  EXPECT_EQ(Make(kBlockBytes, 0, Direct(100)).Begin(), Next::kDone);
}

TEST_F(ReadProgressTest, AShortReadGoesOnWhereItStopped) {
  ReadProgress progress = Make(8192, 8192, Buffered(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  ASSERT_EQ(progress.Advance(100), Next::kReadMore);
  EXPECT_EQ(progress.next_offset_bytes(), 8292u);
  EXPECT_EQ(progress.next_into().size(), 8092u);
  EXPECT_EQ(progress.next_into().data(), memory_.data().data() + 100);
  EXPECT_EQ(progress.Advance(8092), Next::kDone);
}

TEST_F(ReadProgressTest, ADirectReadGoesOnAtABlock) {
  ReadProgress progress = Make(8192, 3 * kBlockBytes, Direct(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  ASSERT_EQ(progress.Advance(kBlockBytes + 512), Next::kReadMore);
  EXPECT_EQ(progress.next_offset_bytes(), 8192u + kBlockBytes);
  EXPECT_EQ(progress.next_into().size(), 2 * kBlockBytes);
  EXPECT_EQ(progress.Advance(2 * kBlockBytes), Next::kDone);
}

TEST_F(ReadProgressTest, ADirectReadThatStopsInsideOneBlockTwiceIsAtTheEndOfAShorterFile) {
  ReadProgress progress = Make(0, 2 * kBlockBytes, Direct(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  ASSERT_EQ(progress.Advance(kBlockBytes + 512), Next::kReadMore);
  EXPECT_EQ(progress.next_offset_bytes(), kBlockBytes);
  ASSERT_EQ(progress.Advance(512), Next::kFailed);
  EXPECT_THAT(std::string(progress.Error("pack").message()),
              HasSubstr("wanted 8192 bytes, got 4608: the file ends there; it had 1048576"));
}

TEST_F(ReadProgressTest, TheLastBlockMayBeCutShortByTheEndOfTheFile) {
  for (const bool direct : {false, true}) {
    ReadProgress progress = Make(8192, kBlockBytes, direct ? Direct(9000) : Buffered(9000));
    ASSERT_EQ(progress.Begin(), Next::kReadMore);
    EXPECT_EQ(progress.Advance(808), Next::kDone) << direct;
  }
}

TEST_F(ReadProgressTest, AWholeBlockPastTheEndIsOutOfRange) {
  for (const bool direct : {false, true}) {
    ReadProgress progress = Make(8192, 2 * kBlockBytes, direct ? Direct(9000) : Buffered(9000));
    ASSERT_EQ(progress.Begin(), Next::kReadMore);
    Next next = progress.Advance(808);
    if (!direct) next = progress.Advance(0);
    ASSERT_EQ(next, Next::kFailed);
    EXPECT_EQ(progress.Error("p").message(),
              "p: read at 8192: wanted 8192 bytes, got 808: the file ends there; it had 9000 bytes "
              "when it was opened");
  }
}

TEST_F(ReadProgressTest, TheEndOfAFileThatHasBecomeShorterNamesWantedGotAndBothSizes) {
  ReadProgress progress = Make(0, 3 * kBlockBytes, Buffered(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  ASSERT_EQ(progress.Advance(5000), Next::kReadMore);
  ASSERT_EQ(progress.Advance(0), Next::kFailed);
  const absl::Status error = progress.Error("/x/pack");
  EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(error.message(),
            "/x/pack: read at 0: wanted 12288 bytes, got 5000: the file ends there; it had 1048576 "
            "bytes when it was opened");
}

TEST_F(ReadProgressTest, AnErrorNamesFileOffsetWantedAndGot) {
  ReadProgress progress = Make(kBlockBytes, 2 * kBlockBytes, Direct(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  ASSERT_EQ(progress.Advance(kBlockBytes), Next::kReadMore);
  ASSERT_EQ(progress.Advance(-EIO), Next::kFailed);
  EXPECT_EQ(progress.Error("/x/pack").message(),
            "/x/pack: read at 4096: wanted 8192 bytes, got 4096: Input/output error");
}

TEST_F(ReadProgressTest, InterruptionsAreRepeatedABoundedNumberOfTimes) {
  for (const int error_number : {EINTR, EAGAIN}) {
    ReadProgress progress = Make(0, kBlockBytes, Buffered(1 << 20));
    ASSERT_EQ(progress.Begin(), Next::kReadMore);
    for (uint32_t i = 1; i < ReadProgress::kFruitlessMax; ++i) {
      ASSERT_EQ(progress.Advance(-error_number), Next::kReadMore) << i;
    }
    ASSERT_EQ(progress.Advance(-error_number), Next::kFailed);
    EXPECT_THAT(std::string(progress.Error("p").message()), HasSubstr("after 64 attempts"));
  }
}

TEST_F(ReadProgressTest, ProgressForgivesEarlierInterruptions) {
  ReadProgress progress = Make(0, 2 * kBlockBytes, Buffered(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 1; i < ReadProgress::kFruitlessMax; ++i) {
      ASSERT_EQ(progress.Advance(-EINTR), Next::kReadMore);
    }
    ASSERT_EQ(progress.Advance(10), Next::kReadMore);
  }
}

TEST_F(ReadProgressTest, InvalidArgumentMeansWithoutDirectOnlyWhileDirect) {
  ReadProgress progress = Make(0, kBlockBytes, Direct(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  ASSERT_EQ(progress.Advance(-EINVAL), Next::kWithoutDirect);
  progress.StopDirect();
  EXPECT_EQ(progress.Advance(-EINVAL), Next::kFailed);
}

TEST_F(ReadProgressTest, DirectReadsMustBeAligned) {
  struct Case {
    uint64_t offset_bytes, begin, length_bytes;
  };
  for (const Case& c : {Case{1, 0, kBlockBytes}, Case{0, 0, 100}, Case{0, 64, kBlockBytes},
                        Case{2048, 0, kBlockBytes}}) {
    const ReadRequest request = {.offset_bytes = c.offset_bytes,
                                 .into = memory_.data().subspan(c.begin, c.length_bytes)};
    ReadProgress direct(request, Direct(1 << 20));
    ASSERT_EQ(direct.Begin(), Next::kFailed);
    EXPECT_EQ(direct.Error("p").code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(direct.Error("p").message()), HasSubstr("multiples of 4096"));
    EXPECT_EQ(ReadProgress(request, Buffered(1 << 20)).Begin(), Next::kReadMore);
  }
}

TEST_F(ReadProgressTest, AnOffsetThatNoFileHasIsItsEnd) {
  ReadProgress progress = Make(~uint64_t{0} & ~(kBlockBytes - 1), kBlockBytes, Direct(1 << 20));
  ASSERT_EQ(progress.Begin(), Next::kFailed);
  EXPECT_EQ(progress.Error("p").code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ReadProgressTest, AttemptsAreNoLongerThanTheLimit) {
  ReadBounds bounds = Direct(1 << 20);
  bounds.attempt_bytes_max = 2 * kBlockBytes;
  ReadProgress progress = Make(0, 5 * kBlockBytes, bounds);
  ASSERT_EQ(progress.Begin(), Next::kReadMore);
  for (const uint64_t blocks : {2, 2}) {
    EXPECT_EQ(progress.next_into().size(), blocks * kBlockBytes);
    ASSERT_EQ(progress.Advance(static_cast<int64_t>(blocks * kBlockBytes)), Next::kReadMore);
  }
  EXPECT_EQ(progress.next_into().size(), kBlockBytes);
  EXPECT_EQ(progress.Advance(kBlockBytes), Next::kDone);
}

}  // namespace
}  // namespace hearth
