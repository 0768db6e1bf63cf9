// Blobs are split into aligned requests that cover them once, and end when the last has.
#include "cache/store/blob_reads.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/units.h"
#include "tests/cache/store/scripted_reader.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

class BlobReadsTest : public testing::Test {
 protected:
  std::span<std::byte> Memory(uint64_t bytes) { return memory_.data().first(bytes); }
  void RunUntilEnded(BlobReads& reads, size_t count) {
    while (reads.ended().size() < count) {
      reads.Submit();
      ASSERT_TRUE(reads.Wait(1'000'000).ok());
    }
  }
  AnonymousMapping memory_ = *AnonymousMapping::Create(8_MiB);
  ReaderScript script_{std::string(8_MiB, 'x')};
  ScriptedReader reader_{script_, 4};
  TestClock clock_;
};

TEST_F(BlobReadsTest, RequestsAreAlignedAndCoverTheBlobOnce) {
  for (uint32_t parts = 1; parts <= 4; ++parts) {
    for (const uint64_t bytes : {4_KiB, 60_KiB, 128_KiB, 132_KiB, 2_MiB + 4_KiB}) {
      BlobReads reads(reader_, clock_, {parts, 2, 1000});
      const uint64_t before = script_.submitted_count();
      reads.Add(BlockId(7), 4_KiB, Memory(bytes));
      RunUntilEnded(reads, 1);
      EXPECT_TRUE(reads.ended()[0].status.ok());
      EXPECT_EQ(reads.ended()[0].block, BlockId(7));
      uint64_t next = 4_KiB;
      const auto all = script_.submitted();
      for (size_t i = before; i < all.size(); ++i) {
        EXPECT_EQ(all[i].offset_bytes, next);
        next += all[i].into.size();
      }
      EXPECT_EQ(next, 4_KiB + bytes);
      EXPECT_LE(all.size() - before, parts);
      if (bytes >= 2_MiB) {
        EXPECT_EQ(all.size() - before, parts);
      }
    }
  }
}

TEST_F(BlobReadsTest, MoreRequestsThanTheReaderTakesAreSubmittedLater) {
  BlobReads reads(reader_, clock_, {4, 3, 1000});
  for (uint32_t i = 0; i < 3; ++i) reads.Add(BlockId(i), i * 1_MiB, Memory(1_MiB));
  EXPECT_FALSE(reads.has_room());
  RunUntilEnded(reads, 3);
  EXPECT_EQ(script_.submitted_count(), 12u);
  EXPECT_EQ(reads.blob_count(), 0u);
}

TEST_F(BlobReadsTest, OneFailedRequestFailsItsBlobOnly) {
  script_.Fail([](const ReadRequest& request) {
    return request.offset_bytes == 512_KiB ? absl::DataLossError("EIO") : absl::OkStatus();
  });
  BlobReads reads(reader_, clock_, {2, 2, 1000});
  reads.Add(BlockId(0), 0, Memory(1_MiB));
  reads.Add(BlockId(1), 2_MiB, Memory(1_MiB));
  RunUntilEnded(reads, 2);
  for (const BlobReads::Ended& ended : reads.ended()) {
    EXPECT_EQ(ended.status.ok(), ended.block == BlockId(1)) << ended.status;
  }
}

TEST_F(BlobReadsTest, ALateBlobIsGivenUpOnceAndEndsWhenItsRequestsDo) {
  script_.Hold([](const ReadRequest& request) { return request.offset_bytes == 0; });
  BlobReads reads(reader_, clock_, {2, 2, 1000});
  reads.Add(BlockId(0), 0, Memory(1_MiB));
  EXPECT_EQ(reads.next_late_ns(), 1000);
  reads.Submit();
  ASSERT_TRUE(reads.Wait(1'000'000).ok());
  EXPECT_TRUE(reads.GiveUpLate().empty());
  clock_.Advance(1000);
  const auto given_up = reads.GiveUpLate();
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_EQ(given_up[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(reads.GiveUpLate().empty());
  EXPECT_EQ(reads.blob_count(), 1u);
  EXPECT_TRUE(reads.ended().empty());
  script_.HoldNone();
  RunUntilEnded(reads, 1);
  EXPECT_TRUE(reads.ended()[0].given_up);
  EXPECT_EQ(reads.busy_ns(), 1000);
}

TEST_F(BlobReadsTest, WhatTheReaderNeverTookEndsAtOnceWhenGivenUp) {
  script_.HoldAll();
  BlobReads reads(reader_, clock_, {4, 2, 1000});
  reads.Add(BlockId(0), 0, Memory(1_MiB));
  reads.Add(BlockId(1), 1_MiB, Memory(1_MiB));
  reads.Submit();  // takes the first blob's four
  clock_.Advance(1000);
  EXPECT_EQ(reads.GiveUpLate().size(), 2u);
  ASSERT_EQ(reads.ended().size(), 1u);
  EXPECT_EQ(reads.ended()[0].block, BlockId(1));
  EXPECT_TRUE(reads.ended()[0].given_up);
}

TEST_F(BlobReadsTest, ARefusedSubmissionFailsItsBlobs) {
  script_.FailSubmit(absl::InternalError("no ring"));
  BlobReads reads(reader_, clock_, {2, 2, 1000});
  reads.Add(BlockId(0), 0, Memory(1_MiB));
  reads.Submit();
  ASSERT_EQ(reads.ended().size(), 1u);
  EXPECT_EQ(reads.ended()[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(reads.has_room());
}

}  // namespace
}  // namespace hearth
