// Profiles in files: what is saved is read, bad files are named, and a seed has the documented
// worth.
#include "runtime/engine/profile_file.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cache/policy/profile_seed.h"
#include "runtime/base/file.h"
#include "runtime/base/replace_file.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RoutingProfile Example() {
  return {.identity = {.model_xxh3_128 = std::string(32, 'a'),
                       .tokenizer_xxh3_128 = std::string(32, 'b'),
                       .layer_count = 1,
                       .has_mtp = true,
                       .expert_count = 4,
                       .ranks = 2},
          .domains = {{.name = "one", .token_count = 3, .counts = {3, 2, 1, 0, 0, 0, 0, 0}},
                      {.name = "two", .token_count = 1, .counts = {1, 0, 0, 1, 0, 0, 0, 0}}}};
}

TEST(ProfileFile, ReadsWhatItWrites) {
  const FixtureDir dir;
  const std::string path = JoinPath(dir.path(), "p.json");
  ASSERT_TRUE(WriteProfile(path, Example()).ok());
  const absl::StatusOr<RoutingProfile> read = ReadProfile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), Example().ToJson());
}

TEST(ProfileFile, NeverSavesWhatItWouldNotRead) {
  const FixtureDir dir;
  const std::string path = JoinPath(dir.path(), "p.json");
  RoutingProfile bad = Example();
  bad.domains[1].counts[0] = 2;
  EXPECT_THAT(std::string(WriteProfile(path, bad).message()),
              HasSubstr("p.json: domains[1].counts[0]"));
  EXPECT_FALSE(FileExists(path));
}

TEST(ProfileFile, MissingHugeEmptyAndCutFilesAreNamed) {
  const FixtureDir dir;
  const std::string path = JoinPath(dir.path(), "p.json");
  EXPECT_EQ(ReadProfile(path).status().code(), absl::StatusCode::kNotFound);
  for (const std::string& text :
       {std::string(), std::string("\0\1\2", 3), Example().ToJson().substr(0, 300),
        std::string(kProfileBytesMax + 1, ' ')}) {
    ASSERT_TRUE(ReplaceFile(path, text).ok());
    const absl::Status status = ReadProfile(path).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(ProfileFile, IdentityIsTheSourcesNotThePacks) {
  Manifest manifest;
  manifest.geometry.layers.resize(5);
  manifest.geometry.has_mtp = true;
  manifest.geometry.moe = {.expert_count = 64, .experts_per_token = 6};
  manifest.source_xxh3_128 = std::string(32, '1');
  manifest.tokenizer_xxh3_128 = std::string(32, '2');
  manifest.experts = "nvfp4";
  const RoutingIdentity id = IdentityOf(manifest);
  EXPECT_EQ(id.model_xxh3_128, std::string(32, '1'));
  EXPECT_EQ(id.tokenizer_xxh3_128, std::string(32, '2'));
  EXPECT_EQ(id.layer_count, 5u);
  EXPECT_TRUE(id.has_mtp);
  EXPECT_EQ(id.expert_count, 64u);
  EXPECT_EQ(id.ranks, 6u);
  manifest.experts = "xt3";
  EXPECT_EQ(IdentityOf(manifest), id);
}

TEST(ProfileFile, SightingsFollowTheChanceThatATokenChoosesTheExpert) {
  const std::vector<std::vector<float>> seeds = SightingsOf(Example());
  ASSERT_EQ(seeds.size(), 2u);
  EXPECT_THAT(seeds[0], ElementsAre(kProfileSightings, kProfileSightings / 2, kProfileSightings / 4,
                                    kProfileSightings / 4));
  EXPECT_THAT(seeds[1], ElementsAre(0, 0, 0, 0)) << "a layer without counts";
}

}  // namespace
}  // namespace hearth
