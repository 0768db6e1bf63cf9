// Flashlet, the model that ships with the project, from its checkpoint to a pack and back: the pack
// opens, every byte verifies, every expert is the source's bit for bit.
#include <chrono>

#include "gtest/gtest.h"

#include "pack/convert/build_pack.h"
#include "pack/reader/pack.h"
#include "pack/reader/verify.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

constexpr char kNvfp4Dir[] = HEARTH_SOURCE_DIR "/profiles/flashlet";
constexpr char kBf16Dir[] = HEARTH_SOURCE_DIR "/../shared/flashlet/bf16";

void BuildAndVerify(const char* from, DenseChoice dense) {
  FixtureDir dir;
  const BuildOptions options = {.from = from, .out = dir.File("pack"), .dense = dense};
  const auto report = BuildPack(options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->experts.inexact_values, 0u);
  EXPECT_EQ(report->dense_inexact_values, 0u);
  EXPECT_EQ(report->experts.error.squared_values, 0) << "nothing was quantised";
  const auto verified = VerifyPack(options.out, nullptr);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->ok()) << verified->faults[0].what;
  const auto pack = Pack::Open(options.out);
  ASSERT_TRUE(pack.ok()) << pack.status();
  EXPECT_EQ(pack->experts.layer_count(), 9u);
  EXPECT_EQ(pack->experts.expert_count(), 64u);
}

TEST(FlashletPack, Nvfp4) { BuildAndVerify(kNvfp4Dir, DenseChoice::kQ8); }

TEST(FlashletPack, Bf16) {
  if (!FileExists(kBf16Dir)) GTEST_SKIP() << kBf16Dir << " is not here";
  BuildAndVerify(kBf16Dir, DenseChoice::kBf16);
}

}  // namespace
}  // namespace hearth
