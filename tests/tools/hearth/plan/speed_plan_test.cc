// Plans of made-up machines: hand calculations, and what must hold of any. The probes of
// tools/hearth/plan/machine_rates.cc and tools/hearth/doctor/read_facts.cc run in
// plan_doctor_test.py.
#include "tools/hearth/plan/speed_plan.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pack/synth/synthetic_geometry.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/units.h"
#include "tools/hearth/plan/drive_rate.h"
#include "tools/hearth/plan/hit_curve.h"
#include "tools/hearth/plan/plan_config.h"
#include "tools/hearth/plan/plan_text.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;

PlanModel FlashNext(ExpertFormat format, uint8_t bits) {
  const auto model = PlanModelOf(NamedGeometry(SyntheticModel::kFlashNext), format,
                                 bits == 0 ? XtBits{} : XtBits::All(bits));
  HEARTH_CHECK(model.ok());
  return *model;
}

const PlanModel& Nvfp4() {
  static const PlanModel kModel = FlashNext(ExpertFormat::kNvfp4, 0);
  return kModel;
}

PlanMachine Desktop() {  // a card of 24 GiB, 96 GiB of RAM
  return {.rates = {.dram = 60e9, .card = 900e9, .link = 25e9, .drive = 6e9},
          .ram_bytes = 96_GiB,
          .card_bytes = 24_GiB,
          .vram_reserve_bytes = 0,
          .context_tokens = 8192};
}

HitCurve Even() { return HitCurve::Even(48, 512); }

TEST(PlanModelOf, KnowsTheModelsSizes) {
  const PlanModel& model = Nvfp4();
  EXPECT_EQ(model.quantisation, "nvfp4");
  // 3 x 2560 x 640 weights of 4.5 bits.
  EXPECT_NEAR(static_cast<double>(model.expert_bytes), 3 * 2560 * 640 * 4.5 / 8, 8192);
  EXPECT_GT(model.dense_bytes, model.dense_token_bytes);
  EXPECT_GT(model.dense_token_bytes, 1_GiB);
  // 12 QSA layers of 2 x 2 x 256 and 128 values in BF16.
  EXPECT_EQ(model.cache_token_bytes, 12u * 2 * (2 * 2 * 256 + 128));
  EXPECT_LT(FlashNext(ExpertFormat::kXt, 2).expert_bytes, model.expert_bytes / 2 + 4096);
}

TEST(PlanSpeed, PlacesEveryExpertOnce) {
  for (const uint64_t ram : {8_GiB, 32_GiB, 96_GiB}) {
    for (const uint64_t card : {0_GiB, 12_GiB, 24_GiB, 192_GiB}) {
      PlanMachine machine = Desktop();
      machine.ram_bytes = ram;
      machine.card_bytes = card;
      const SpeedPlan plan = PlanSpeed(Nvfp4(), machine, Even());
      ASSERT_TRUE(plan.fits) << plan.trouble;
      EXPECT_EQ(plan.ram_count + plan.drive_count, 48u * 512);
      EXPECT_LE(plan.slot_count, 48u * 512);
      EXPECT_LE(plan.card_dense_bytes + plan.card_cache_bytes + plan.card_slot_bytes, card);
      EXPECT_LE(plan.ram_dense_bytes + plan.ram_cache_bytes + plan.ram_expert_bytes, ram);
      EXPECT_LE(plan.tokens_per_sec.low, plan.tokens_per_sec.expected);
      EXPECT_LE(plan.tokens_per_sec.expected, plan.tokens_per_sec.high);
      EXPECT_LE(plan.tokens_per_sec.expected, 1 / plan.floor_sec);
    }
  }
}

// A hand calculation: no card, all in RAM.
TEST(PlanSpeed, TheFloorIsBytesOverRate) {
  PlanMachine machine = Desktop();
  machine.card_bytes = 0;
  const SpeedPlan plan = PlanSpeed(Nvfp4(), machine, Even());
  const double bytes = static_cast<double>(Nvfp4().dense_token_bytes) +
                       480.0 * static_cast<double>(Nvfp4().expert_bytes);
  EXPECT_NEAR(plan.floor_sec, bytes / 60e9, 1e-9);
  EXPECT_EQ(plan.bound, "dram");
  EXPECT_EQ(plan.drive_count, 0u);
  EXPECT_EQ(plan.slot_count, 0u);
}

TEST(PlanSpeed, MoreOfAnythingIsNeverSlower) {
  double last = 0;
  for (const uint64_t ram : {8_GiB, 16_GiB, 32_GiB, 64_GiB, 128_GiB}) {
    PlanMachine machine = Desktop();
    machine.ram_bytes = ram;
    machine.card_bytes = 0;
    const SpeedPlan plan = PlanSpeed(Nvfp4(), machine, Even());
    ASSERT_TRUE(plan.fits);
    EXPECT_GE(plan.tokens_per_sec.expected, last);
    last = plan.tokens_per_sec.expected;
  }
  last = 0;
  for (const uint8_t bits : {4, 3, 2}) {
    const SpeedPlan plan = PlanSpeed(FlashNext(ExpertFormat::kXt, bits), Desktop(), Even());
    EXPECT_GT(plan.tokens_per_sec.expected, last);
    last = plan.tokens_per_sec.expected;
  }
  PlanMachine slow = Desktop();
  slow.ram_bytes = 16_GiB;
  slow.card_bytes = 0;
  EXPECT_EQ(PlanSpeed(Nvfp4(), slow, Even()).bound, "drive");
}

TEST(PlanSpeed, SaysWhyItDoesNotRun) {
  PlanMachine machine = Desktop();
  machine.card_bytes = 2_GiB;
  EXPECT_THAT(PlanSpeed(Nvfp4(), machine, Even()).trouble, HasSubstr("the card has 2.00 GiB"));
  machine = Desktop();
  machine.ram_bytes = 600_MiB;
  EXPECT_THAT(PlanSpeed(Nvfp4(), machine, Even()).trouble, HasSubstr("RAM has 600 MiB"));
  machine = Desktop();
  machine.ram_bytes = 16_GiB;
  machine.rates.drive = 0;
  EXPECT_THAT(PlanSpeed(Nvfp4(), machine, Even()).trouble, HasSubstr("drive"));
}

RoutingProfile Profile() {
  RoutingProfile profile;
  profile.identity = {.layer_count = 1, .expert_count = 4, .ranks = 1};
  profile.domains = {{.name = "a", .token_count = 100, .counts = {70, 20, 10, 0}},
                     {.name = "b", .token_count = 100, .counts = {10, 60, 10, 20}}};
  return profile;
}

TEST(HitCurve, OfAProfile) {
  const HitCurve curve = HitCurve::Of(Profile());
  EXPECT_TRUE(curve.from_profile());
  EXPECT_EQ(curve.At(0).high, 0);
  EXPECT_EQ(curve.At(4).low, 1);
  EXPECT_EQ(curve.At(99).expected, 1);
  // One expert: all texts count 80 for the first and for the second (the first wins): 40%. Text a
  // with what b counts most: 20%; b with what a does: 10%.
  const HitRange one = curve.At(1);
  EXPECT_NEAR(one.low, 0.1, 1e-12);
  EXPECT_NEAR(one.expected, 0.15, 1e-12);
  EXPECT_NEAR(one.high, 0.4, 1e-12);
  for (uint64_t held = 0; held <= 4; ++held) {
    const HitRange range = curve.At(held);
    EXPECT_LE(range.low, range.expected);
    EXPECT_LE(range.expected, range.high);
  }
}

TEST(HitCurve, EvenAndOneDomainHaveNoRange) {
  const HitRange even = HitCurve::Even(2, 8).At(4);
  EXPECT_EQ(even.low, 0.25);
  EXPECT_EQ(even.high, 0.25);
  RoutingProfile profile = Profile();
  profile.domains.pop_back();
  EXPECT_EQ(HitCurve::Of(profile).At(1).low, 0.7);
  EXPECT_EQ(HitCurve::Of(profile).At(1).high, 0.7);
  EXPECT_EQ(HitCurve().At(3).expected, 0);
}

TEST(PlanText, TextAndJsonTellTheSame) {
  PlanReport report = {.model = "flash-next",
                       .machine = Desktop(),
                       .card = "A card",
                       .drive = "6.00 GB/s",
                       .notes = {"a note"}};
  report.plans.push_back(PlanSpeed(Nvfp4(), report.machine, Even()));
  PlanMachine small = Desktop();
  small.ram_bytes = 100_MiB;
  report.plans.push_back(PlanSpeed(FlashNext(ExpertFormat::kXt, 3), small, Even()));
  const std::string text = PlanText(report);
  EXPECT_THAT(text, HasSubstr("nvfp4"));
  EXPECT_THAT(text, HasSubstr("does not run: RAM has"));
  EXPECT_THAT(text, HasSubstr("a note"));
  const auto json = nlohmann::json::parse(PlanJson(report));
  EXPECT_EQ(json["plans"].size(), 2u);
  EXPECT_EQ(json["plans"][0]["card"]["slots"], report.plans[0].slot_count);
  EXPECT_FALSE(json["plans"][1]["fits"]);
  EXPECT_NEAR(json["plans"][0]["tokens_per_sec"]["expected"].get<double>(),
              report.plans[0].tokens_per_sec.expected, 1e-9);
}

TEST(PlanConfig, ReadsItsFlags) {
  EXPECT_EQ(ParseQuantisations("nvfp4,xt3")->size(), 2u);
  EXPECT_EQ((*ParseQuantisations("xt3"))[0].bits.gate, 3);
  EXPECT_FALSE(ParseQuantisations("xt5").ok());
  EXPECT_FALSE(ParseQuantisations("").ok());
  EXPECT_TRUE(GeometryOf("flashlet").ok());
  EXPECT_FALSE(GeometryOf("huge").ok());
  EXPECT_TRUE(PlanConfig().Validate({}).ok());
  PlanConfig config;
  config.pack = "p";
  GivenFields given;
  given.Add("quant");
  EXPECT_FALSE(config.Validate(given).ok());
  config = {};
  config.device = "tpu";
  EXPECT_FALSE(config.Validate({}).ok());
}

TEST(MeasureDriveRate, ReadsAFileOrSaysWhyNot) {
  SteadyClock clock;
  const std::string path = testing::TempDir() + "/drive_rate";
  {
    std::ofstream file(path, std::ios::binary);
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 8; ++i) file << block;
  }
  const auto rate = MeasureDriveRate(
      {.path = path, .read_bytes = 100'000, .in_flight = 4, .duration_ns = 20'000'000}, clock);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(rate->bytes_per_sec, 0);
  EXPECT_EQ(MeasureDriveRate({.path = path, .read_bytes = 9 << 20}, clock).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(MeasureDriveRate({.path = path + "-none"}, clock).ok());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace hearth::cli
