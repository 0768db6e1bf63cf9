// The floor of a layer's experts, routes of a trace for more layers than it has, and made-up
// experts.
#include "tools/hearth/window_bench.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"
#include "tools/hearth/made_up_experts.h"
#include "tools/hearth/scratch_folder.h"

namespace hearth::cli {
namespace {

TEST(ExpertFloor, TheSlowestOfCardLinkAndHost) {
  LedgerCounts layer;
  layer.of(Service::kVram).bytes = 3000;
  layer.of(Service::kPcie).bytes = 1000;
  layer.of(Service::kCpu).bytes = 500;
  EXPECT_DOUBLE_EQ(ExpertFloorSec(layer, {.dram = 1e9, .card = 1000, .link = 1e9}), 4.0);
  EXPECT_DOUBLE_EQ(ExpertFloorSec(layer, {.dram = 1e9, .card = 1e9, .link = 500}), 2.0);
  // What is uploaded is read from the memory that the CPU reads, too.
  EXPECT_DOUBLE_EQ(ExpertFloorSec(layer, {.dram = 100, .card = 1e9, .link = 1e9}), 15.0);
  EXPECT_DOUBLE_EQ(ExpertFloorSec(layer, {.dram = 100}), 45.0) << "without a card";
}

RouteTrace SmallTrace(uint64_t tokens) {
  RouteTrace trace;
  trace.identity.layer_count = 2;
  trace.identity.expert_count = 64;
  trace.identity.ranks = 2;
  trace.text_begins = {0};
  for (uint64_t t = 0; t < tokens; ++t) {
    for (uint32_t l = 0; l < 2; ++l) {
      trace.routes.push_back(static_cast<uint16_t>(t % 32));
      trace.routes.push_back(static_cast<uint16_t>(32 + l));
    }
  }
  return trace;
}

TEST(TraceRoutes, LayersBeyondTheTracesOwnAreASegmentLater) {
  const RouteTrace trace = SmallTrace(5000);
  TraceRoutes routes(trace);
  ASSERT_TRUE(routes.Check(64, 2).ok());
  EXPECT_FALSE(routes.Check(128, 2).ok());
  EXPECT_FALSE(routes.Check(64, 4).ok());
  routes.set_token(7);
  EXPECT_THAT(routes.RoutesOf(LayerId(1), 2, 2), testing::ElementsAre(7u, 33u, 8u, 33u));
  const uint32_t later = (7 + TraceRoutes::kSegmentTokens) % 32;
  EXPECT_THAT(routes.RoutesOf(LayerId(3), 1, 2), testing::ElementsAre(later, 33u));
  routes.set_token(4999);  // the trace begins again
  EXPECT_THAT(routes.RoutesOf(LayerId(0), 2, 2), testing::ElementsAre(4999u % 32, 32u, 0u, 32u));
}

TEST(TraceRoutes, SightingsCountTheChoicesOfTheFirstTokens) {
  const RouteTrace trace = SmallTrace(64);
  const std::vector<float> sightings = TraceRoutes(trace).Sightings(LayerId(0), 33, 64);
  EXPECT_EQ(sightings[0], 2);
  EXPECT_EQ(sightings[1], 1);
  EXPECT_EQ(sightings[32], 33);
  EXPECT_EQ(sightings[33], 0);
}

TEST(MadeUpExperts, EveryExpertHasMemoryOfItsOwnAndABlobOfItsFormat) {
  WorkerTeam team(2);
  const ExpertLayout nvfp4 = *ExpertLayout::Create(ExpertFormat::kNvfp4, 64, 32);
  const ExpertLayout fp8 = *ExpertLayout::Create(ExpertFormat::kFp8, 64, 32);
  const auto made = MadeUpExperts::Create({nvfp4, nvfp4, fp8}, 100, team, nullptr);
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<ExpertStore> store = (*made)->MakeStore();
  EXPECT_EQ(store->layer_count(), 3u);
  EXPECT_EQ(store->expert_count(), 100u);
  const std::byte* end = nullptr;
  for (uint32_t l = 0; l < 3; ++l) {
    for (uint32_t e = 0; e < 100; ++e) {
      const absl::StatusOr<ExpertLease> lease = store->Acquire({LayerId(l), ExpertId(e)});
      ASSERT_TRUE(lease.ok());
      ASSERT_EQ(lease->bytes().size(), store->layout(LayerId(l)).blob_bytes());
      EXPECT_GE(lease->bytes().data(), end);
      end = lease->bytes().data() + lease->bytes().size();
      EXPECT_THAT(lease->bytes(), testing::Not(testing::Each(std::byte{0})));
    }
  }
  EXPECT_EQ(store->memory().front().bytes.size(), (*made)->bytes());
}

TEST(ScratchFolder, IsGoneWithWhatIsInItWhenItsOwnerIs) {
  std::string path;
  {
    const auto folder = ScratchFolder::Create(testing::TempDir(), "scratch");
    ASSERT_TRUE(folder.ok()) << folder.status();
    path = folder->path();
    auto file = SequentialFile::Create(JoinPath(path, "a"));
    ASSERT_TRUE(file.ok() && file->Finish().ok());
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const absl::Status status = ScratchFolder::Create("/no/such/place", "x").status();
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/no/such/place"));
}

}  // namespace
}  // namespace hearth::cli
