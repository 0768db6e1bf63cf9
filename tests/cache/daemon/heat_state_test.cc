// The saved heat: it reads back, and whatever is not exactly it is refused by name; a daemon starts
// with it, or without it and a warning.
#include "cache/daemon/heat_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/cache/daemon/daemon_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

const HeatModelIdentity kModel{"00112233445566778899aabbccddeeff", 2, 3};
const std::vector<float> kHeat = {0.0f, 1.5f, 2.0f, 3.0f, 1e-20f, 7e20f};

TEST(HeatState, ReadsBackAsItWasSaved) {
  const FixtureDir dir;
  const std::string path = dir.File("state");
  EXPECT_EQ(LoadHeat(path, kModel).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(SaveHeat(path, kModel, kHeat).ok());
  EXPECT_EQ(*LoadHeat(path, kModel), kHeat);
  ASSERT_TRUE(SaveHeat(path, kModel, std::vector<float>(6, 9.0f)).ok());
  EXPECT_EQ(LoadHeat(path, kModel)->at(5), 9.0f);
  EXPECT_EQ(ReadFixtureFile(path).size(), 64u + 6 * 4);
}

TEST(HeatState, EveryCutAndEveryFlippedBitIsRefusedByName) {
  const FixtureDir dir;
  const std::string path = dir.File("state");
  ASSERT_TRUE(SaveHeat(path, kModel, kHeat).ok());
  const std::string whole = ReadFixtureFile(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    WriteFixtureFile(path, whole.substr(0, bytes));
    const absl::Status status = LoadHeat(path, kModel).status();
    EXPECT_FALSE(status.ok()) << bytes;
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  WriteFixtureFile(path, whole + "x");
  EXPECT_FALSE(LoadHeat(path, kModel).ok());
  for (size_t bit = 0; bit < whole.size() * 8; bit += 3) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    WriteFixtureFile(path, flipped);
    EXPECT_FALSE(LoadHeat(path, kModel).ok()) << bit;
  }
}

TEST(HeatState, AnotherModelsIsRefusedWithBoth) {
  const FixtureDir dir;
  const std::string path = dir.File("state");
  ASSERT_TRUE(SaveHeat(path, kModel, kHeat).ok());
  HeatModelIdentity other = kModel;
  other.source_hash[0] = 'f';
  EXPECT_THAT(LoadHeat(path, other).status().message(), HasSubstr("another model"));
  other = kModel;
  std::swap(other.layer_count, other.expert_count);
  EXPECT_THAT(LoadHeat(path, other).status().message(), HasSubstr("2 layers of 3"));
}

TEST(HeatState, AFolderThatIsNotThereIsNamed) {
  const FixtureDir dir;
  const std::string path = dir.File("none") + "/state";
  EXPECT_THAT(SaveHeat(path, kModel, kHeat).message(), HasSubstr("none"));
}

class DaemonStateTest : public ::testing::Test {
 protected:
  StoreFixture store_{kDaemonShape};
  FixtureDir dir_;
  std::string socket_ = dir_.File("hearthd");
  std::string state_ = dir_.File("state");
  HeatModelIdentity model_{TestManifest().source_xxh3_128, store_.file().layer_count(),
                           store_.file().expert_count()};
};

TEST_F(DaemonStateTest, IsSavedAtTheEndAndReadAtHalfItsWeight) {
  float saved = 0;
  {
    DaemonThread daemon(store_, socket_, {.state_path = state_});
    std::vector<float> seeds(model_.expert_count);
    seeds[6] = 8.0f;
    daemon.blocks().Seed(LayerId(1), seeds);
    saved = daemon.blocks().Heat(Key(1, 6));
    ASSERT_GT(saved, 0.0f);
  }
  DaemonThread daemon(store_, socket_, {.state_path = state_});
  const float again = daemon.blocks().Heat(Key(1, 6));
  EXPECT_GT(again, 0.0f);
  EXPECT_LT(again, saved);
  EXPECT_EQ(daemon.blocks().Heat(Key(1, 5)), 0.0f);
  EXPECT_EQ(daemon.lines(), "");
}

// What was hot is read first.
TEST_F(DaemonStateTest, DecidesWhatIsFilled) {
  std::vector<float> heat(size_t{model_.layer_count} * model_.expert_count);
  const std::vector<uint32_t> hot = {1, 4, 9, 13};
  for (const uint32_t e : hot) heat[model_.expert_count + e] = 5.0f;
  ASSERT_TRUE(SaveHeat(state_, model_, heat).ok());
  DaemonThread daemon(store_, socket_, {.share = 0.3, .fill = true, .state_path = state_});
  for (const uint32_t e : hot) {
    EXPECT_TRUE(Eventually([&] { return daemon.blocks().Find(Key(1, e)).valid(); }));
  }
}

TEST_F(DaemonStateTest, ABadOneIsAWarningAndTheDaemonStarts) {
  for (const std::string& text : {std::string("garbage"), std::string(500, '\0')}) {
    WriteFixtureFile(state_, text);
    DaemonThread daemon(store_, socket_, {.state_path = state_});
    EXPECT_THAT(daemon.lines(), HasSubstr("the saved heat is not used: " + state_));
  }
  // The end of the daemon has replaced it by a good one.
  EXPECT_TRUE(LoadHeat(state_, model_).ok());
}

TEST_F(DaemonStateTest, AFolderThatCannotBeWrittenIsAWarning) {
  const std::string path = dir_.File("gone") + "/state";
  std::string lines;
  {
    DaemonThread daemon(store_, socket_, {.state_path = path});
    ASSERT_TRUE(ConnectTo(socket_, store_, *std::make_unique<SteadyClock>()).ok());
  }
  EXPECT_FALSE(FileExists(path));
}

}  // namespace
}  // namespace hearth
