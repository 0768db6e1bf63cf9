// Reads that fail, are damaged or never end: exactly those who wait are told, with path, layer,
// expert and offset, and no block is lost or handed out half written.
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"

#include "cache/store/block_tier.h"
#include "tests/cache/store/ram_fixture.h"

namespace hearth {
namespace {

uint64_t TrunkBlocks(const StoreFixture& store, uint64_t count) {
  return store.file().layout(LayerId(0)).stride_bytes() * count;
}

void ExpectNamed(const absl::Status& status, const StoreFixture& store, ExpertKey key) {
  for (const std::string& part :
       {store.path(), absl::StrCat("layer ", key.layer.value, " expert ", key.expert.value),
        absl::StrCat(store.file().offset_bytes(key))}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part << " in " << status;
  }
}

TEST(RamFaults, AFailedReadIsToldToItsAskersAndNobodyElse) {
  const StoreFixture store;
  RamFixture ram(store);
  const uint64_t bad = store.file().offset_bytes(Key(1, 4));
  ram.script.Fail([bad](const ReadRequest& request) {
    return request.offset_bytes == bad ? absl::DataLossError("Input/output error")
                                       : absl::OkStatus();
  });
  Asker asker(*ram.blocks);
  const uint64_t a = asker.Ask(Key(1, 4)), b = asker.Ask(Key(1, 4)), c = asker.Ask(Key(1, 5));
  EXPECT_TRUE(asker.Await(c).ok());
  for (const uint64_t number : {a, b}) {
    const absl::Status status = asker.Await(number).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("Input/output error"), absl::string_view::npos);
    ExpectNamed(status, store, Key(1, 4));
  }
  EXPECT_FALSE(ram->Find(Key(1, 4)).valid());
  ram.script.Fail(nullptr);
  const absl::StatusOr<BlockId> again = asker.Get(Key(1, 4));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(store.Equal(Key(1, 4), ram->bytes(*again)));
}

TEST(RamFaults, FailingReadsLoseNoBlocks) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 4)});
  Asker asker(*ram.blocks);
  ram.script.Fail([](const ReadRequest&) { return absl::DataLossError("EIO"); });
  for (int round = 0; round < 3; ++round) {
    for (const ExpertKey key : store.keys()) EXPECT_FALSE(asker.Get(key).ok());
  }
  ram.script.Fail(nullptr);
  for (uint32_t e = 0; e < 4; ++e) EXPECT_TRUE(asker.Get(Key(0, e)).ok());  // all at once
}

TEST(RamFaults, ADamagedExpertIsFoundTheFirstTimeItIsRead) {
  StoreFixture store;
  store.Damage(Key(2, 11));
  RamFixture ram(store);
  Asker asker(*ram.blocks);
  const absl::Status status = asker.Get(Key(2, 11)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  ExpectNamed(status, store, Key(2, 11));
  EXPECT_FALSE(ram->Find(Key(2, 11)).valid());
  EXPECT_TRUE(asker.Get(Key(2, 10)).ok());
  const absl::Status fill = ram->Fill(nullptr);
  EXPECT_EQ(fill.code(), absl::StatusCode::kDataLoss);
  ExpectNamed(fill, store, Key(2, 11));
}

TEST(RamFaults, ADriveThatDoesNotAnswerIsAnErrorAndItsBlockIsNotReusedMeanwhile) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 4)});
  const uint64_t stuck = store.file().offset_bytes(Key(0, 0));
  ram.script.Hold([stuck](const ReadRequest& request) { return request.offset_bytes == stuck; });
  Asker asker(*ram.blocks);
  const uint64_t number = asker.Ask(Key(0, 0));
  ram.script.AwaitSubmitted(2);
  const std::byte* const stuck_block = ram.script.submitted()[0].into.data();
  ram.clock.Advance(kTestTimeoutNs);
  ram.script.Wake();
  const absl::Status status = asker.Await(number).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  ExpectNamed(status, store, Key(0, 0));
  // Three blocks are left, however much is asked for.
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t e = 1; e < 16; ++e) {
      const absl::StatusOr<BlockId> block = asker.Get(Key(1, e));
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_NE(ram->bytes(*block).data(), stuck_block);
      asker.ReleaseAll();
    }
  }
  // The kernel writes at last: that must not hit anybody.
  ram.script.HoldNone();
  for (uint32_t e = 0; e < 4; ++e) {
    const absl::StatusOr<BlockId> block = asker.Get(Key(2, e));
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_TRUE(store.Equal(Key(2, e), ram->bytes(*block)));
  }
}

TEST(RamFaults, AnExpertGivenUpCanBeAskedForAgainWhileItsOldReadIsStuck) {
  const StoreFixture store;
  RamFixture ram(store, {.options = {.blob_requests = 1}});
  ram.script.HoldAll();
  Asker asker(*ram.blocks);
  const uint64_t first = asker.Ask(Key(0, 0));
  ram.script.AwaitSubmitted(1);
  ram.clock.Advance(kTestTimeoutNs);
  ram.script.Wake();
  EXPECT_FALSE(asker.Await(first).ok());
  const std::byte* const stuck_block = ram.script.submitted()[0].into.data();
  const uint64_t second = asker.Ask(Key(0, 0));
  ram.script.AwaitSubmitted(2);
  ram.script.Hold([stuck_block](const ReadRequest& r) { return r.into.data() == stuck_block; });
  const absl::StatusOr<BlockId> block = asker.Await(second);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(store.Equal(Key(0, 0), ram->bytes(*block)));
}

TEST(RamFaults, AnAskThatFindsNoBlockIsAnErrorAfterABoundedTime) {
  const StoreFixture store({.has_mtp = false});
  RamFixture ram(store, {.memory_bytes = TrunkBlocks(store, 4)});
  Asker holder(*ram.blocks), asker(*ram.blocks);
  for (uint32_t e = 0; e < 4; ++e) ASSERT_TRUE(holder.Get(Key(0, e)).ok());
  const uint64_t number = asker.Ask(Key(1, 1));
  ram.clock.Advance(kTestTimeoutNs);
  ram.script.Wake();
  const absl::Status status = asker.Await(number).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("--ram-budget"), absl::string_view::npos) << status;
  ExpectNamed(status, store, Key(1, 1));
  const uint64_t next = asker.Ask(Key(1, 2));
  holder.ReleaseAll();
  EXPECT_TRUE(asker.Await(next).ok());
}

TEST(RamFaults, ABrokenReaderFailsWhatWaitsAndWhatComesLater) {
  const StoreFixture store;
  RamFixture ram(store);
  Asker asker(*ram.blocks);
  ASSERT_TRUE(asker.Get(Key(0, 9)).ok());
  ram.script.HoldAll();
  std::vector<uint64_t> numbers;
  for (uint32_t e = 0; e < 16; ++e) numbers.push_back(asker.Ask(Key(1, e)));
  ram.script.AwaitSubmitted(2);
  ram.script.Break(absl::InternalError("the ring is gone"));
  for (const uint64_t number : numbers) {
    EXPECT_EQ(asker.Await(number).status().code(), absl::StatusCode::kInternal);
  }
  EXPECT_EQ(asker.Get(Key(2, 1)).status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(asker.Get(Key(0, 9)).ok());  // what is in RAM is still served
}

TEST(RamFaults, ARefusedSubmissionFailsItsAskers) {
  const StoreFixture store;
  RamFixture ram(store);
  ram.script.FailSubmit(absl::UnavailableError("io_uring is not allowed"));
  Asker asker(*ram.blocks);
  EXPECT_EQ(asker.Get(Key(0, 0)).status().code(), absl::StatusCode::kUnavailable);
  ram.script.FailSubmit(absl::OkStatus());
  EXPECT_TRUE(asker.Get(Key(0, 0)).ok());
}

TEST(RamFaults, ClosingTellsWhoeverWaits) {
  const StoreFixture store;
  auto ram = std::make_unique<RamFixture>(store);
  ram->script.HoldAll();
  std::atomic<int> cancelled{0};
  for (uint32_t e = 0; e < 16; ++e) {
    ram->blocks->Fetch(Key(0, e), [&](const absl::StatusOr<BlockId>& block) {
      cancelled += block.status().code() == absl::StatusCode::kCancelled ? 1 : 0;
    });
  }
  ram->script.AwaitSubmitted(2);
  ram.reset();
  EXPECT_EQ(cancelled, 16);
}

TEST(RamFaults, UnknownExpertsAreNotFound) {
  const StoreFixture store;
  RamFixture ram(store);
  Asker asker(*ram.blocks);
  EXPECT_EQ(asker.Get(Key(9, 0)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(asker.Get(Key(0, 16)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ram->Lease(Key(0, 16)).valid());
  EXPECT_FALSE(ram->Find(Key(9, 0)).valid());
  ram->LookAhead(Key(9, 9));
  ram->SetHeldInVram(Key(9, 9), true);
}

}  // namespace
}  // namespace hearth
