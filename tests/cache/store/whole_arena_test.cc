// The whole arena hands out exactly the pack's bytes and refuses a damaged pack by name.
#include "cache/store/whole_arena.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/base/huge_pages.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

TEST(WholeArena, HoldsEveryBlobAsThePackDoes) {
  const StoreFixture pack;
  for (const std::vector<uint32_t>& nodes :
       {std::vector<uint32_t>(), {0, 1, 0}, {1, 1, 0}, {0, 1, 2}}) {
    WorkerTeam team(3, nodes);
    uint64_t last_done = 0, last_total = 1;
    const auto arena = WholeArena::Load(pack.file(), team, [&](uint64_t done, uint64_t total) {
      EXPECT_GE(done, last_done);
      last_done = done;
      last_total = total;
    });
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(last_done, last_total);
    std::vector<std::byte> blob;
    for (uint32_t layer = 0; layer < (*arena)->layer_count(); ++layer) {
      for (uint32_t e = 0; e < (*arena)->expert_count(); ++e) {
        const ExpertKey key{LayerId(layer), ExpertId(e)};
        blob.resize((*arena)->layout(key.layer).blob_bytes());
        ASSERT_TRUE(pack.file().Read(key, blob).ok());
        const absl::StatusOr<ExpertLease> lease = (*arena)->Acquire(key);
        ASSERT_TRUE(lease.ok()) << lease.status();
        ASSERT_EQ(lease->bytes().size(), blob.size());
        EXPECT_EQ(std::memcmp(lease->bytes().data(), blob.data(), blob.size()), 0);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(lease->bytes().data()) % 64, 0u);
        EXPECT_EQ((*arena)->NodeOf(key), e % team.node_count());
      }
    }
  }
}

TEST(WholeArena, EveryWayToReadGivesTheSameBytes) {
  const StoreFixture pack;
  WorkerTeam team(2);
  for (const IoChoice io : {IoChoice::kAuto, IoChoice::kPread}) {
    for (const bool direct : {true, false}) {
      for (const uint32_t blobs : {1u, 5u, 256u}) {
        const auto arena = WholeArena::Load(
            pack.file(), team, nullptr,
            {.io = io, .direct = direct, .blob_requests = 1 + blobs % 4, .blobs_in_flight = blobs});
        ASSERT_TRUE(arena.ok()) << arena.status();
        for (const ExpertKey key : pack.keys()) {
          EXPECT_TRUE(pack.Equal(key, (*arena)->Acquire(key)->bytes()));
        }
        EXPECT_EQ((*arena)->stats().read_count, pack.keys().size());
        EXPECT_EQ((*arena)->stats().read_bytes, (*arena)->bytes());
      }
    }
  }
  EXPECT_EQ(WholeArena::Load(pack.file(), team, nullptr, {.blobs_in_flight = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(WholeArena, AFileCutShorterSinceItWasOpenedIsAnError) {
  const StoreFixture pack;
  WorkerTeam team(2);
  const uint64_t cut_at = pack.file().offset_bytes(Key(3, 4)) + 100;
  ASSERT_EQ(::truncate(pack.path().c_str(), static_cast<off_t>(cut_at)), 0);
  const absl::Status status = WholeArena::Load(pack.file(), team, nullptr).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("layer 3 expert"), absl::string_view::npos) << status;
}

// Whole nodes apart: no page holds experts of two nodes.
TEST(WholeArena, ExpertsOfTwoNodesShareNoPage) {
  const StoreFixture pack;
  WorkerTeam team(4, {0, 0, 1, 1});
  const auto arena = WholeArena::Load(pack.file(), team, nullptr);
  ASSERT_TRUE(arena.ok()) << arena.status();
  uintptr_t last_of_first = 0, first_of_second = UINTPTR_MAX;
  for (uint32_t layer = 0; layer < (*arena)->layer_count(); ++layer) {
    for (uint32_t e = 0; e < (*arena)->expert_count(); ++e) {
      const absl::StatusOr<ExpertLease> lease = (*arena)->Acquire({LayerId(layer), ExpertId(e)});
      ASSERT_TRUE(lease.ok()) << lease.status();
      const auto begin = reinterpret_cast<uintptr_t>(lease->bytes().data());
      if (e % 2 == 0) last_of_first = std::max(last_of_first, begin + lease->bytes().size() - 1);
      if (e % 2 == 1) first_of_second = std::min(first_of_second, begin);
    }
  }
  EXPECT_LT(last_of_first / kHugePageBytes, first_of_second / kHugePageBytes);
}

TEST(WholeArena, UnknownExpertIsNotFound) {
  const StoreFixture pack;
  WorkerTeam team(1);
  const auto arena = WholeArena::Load(pack.file(), team, nullptr);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->Acquire({LayerId(9), ExpertId(0)}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ((*arena)->Acquire({LayerId(0), ExpertId(16)}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(WholeArena, DamagedExpertIsNamed) {
  StoreFixture pack;
  pack.Damage(Key(2, 11));
  WorkerTeam team(2);
  const absl::Status status = WholeArena::Load(pack.file(), team, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("experts.bin"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("layer 2"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("expert 11"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace hearth
