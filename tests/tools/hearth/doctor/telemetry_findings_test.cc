// What a made-up server measured beside a made-up plan.
#include "tools/hearth/doctor/telemetry_findings.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A server that does what was planned.
TelemetrySnapshot Served() {
  TelemetrySnapshot snapshot;
  snapshot.facts.memory = {{.what = "experts", .bytes = 8_GiB},
                           {.what = "dense", .bytes = 3_GiB, .on_card = true}};
  snapshot.process.ram_bytes = 8_GiB + 100_MiB;
  snapshot.facts.max_bytes_per_sec[static_cast<uint32_t>(Channel::kDram)] = 40e9;
  snapshot.facts.max_bytes_per_sec[static_cast<uint32_t>(Channel::kDrive)] = 3e9;
  snapshot.peak_bytes_per_sec[static_cast<uint32_t>(Channel::kDram)] = 30e9;
  snapshot.peak_bytes_per_sec[static_cast<uint32_t>(Channel::kDrive)] = 1e9;
  snapshot.engine.slots.present = true;
  LedgerCounts layer;
  layer.passes = 100;
  layer.of(Service::kVram).distinct = 60;
  layer.of(Service::kCpu).distinct = 40;
  snapshot.engine.layers = {layer};
  snapshot.recent.span_ns = 1;
  snapshot.recent.layers = {layer};
  snapshot.recent.token_gap.Add(50'000'000, 100);
  return snapshot;
}

SpeedPlan Planned() {
  SpeedPlan plan;
  plan.slot_hits = {.low = 0.5, .expected = 0.6, .high = 0.7};
  plan.tokens_per_sec = {.low = 15, .expected = 20, .high = 30};
  plan.bound = "dram";
  return plan;
}

const Finding* Find(const std::vector<Finding>& findings, const std::string& id) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.id == id; });
  return found == findings.end() ? nullptr : &*found;
}

TEST(CompareWithTelemetry, AsPlannedIsOk) {
  const std::vector<Finding> findings = CompareWithTelemetry(Served(), Planned());
  EXPECT_EQ(Worst(findings), Severity::kOk) << FindingsText(findings);
  ASSERT_NE(Find(findings, "telemetry.hits"), nullptr);
  EXPECT_THAT(Find(findings, "telemetry.hits")->found, HasSubstr("60%"));
  ASSERT_NE(Find(findings, "telemetry.speed"), nullptr);
  EXPECT_THAT(Find(findings, "telemetry.speed")->found, HasSubstr("planned 20.0 (15.0 to 30.0"));
  EXPECT_THAT(Find(findings, "telemetry.rate.dram")->found, HasSubstr("75%"));
}

TEST(CompareWithTelemetry, WhatFallsShortIsNamed) {
  TelemetrySnapshot slow = Served();
  slow.recent.token_gap = {};
  slow.recent.token_gap.Add(200'000'000, 100);
  slow.process.ram_bytes = 12_GiB;
  slow.peak_bytes_per_sec[static_cast<uint32_t>(Channel::kDrive)] = 2.9e9;
  slow.recent.layers[0].of(Service::kVram).distinct = 20;
  const std::vector<Finding> findings = CompareWithTelemetry(slow, Planned());
  EXPECT_EQ(Find(findings, "telemetry.memory")->severity, Severity::kWarning);
  EXPECT_EQ(Find(findings, "telemetry.rate.drive")->severity, Severity::kAdvice);
  EXPECT_EQ(Find(findings, "telemetry.hits")->severity, Severity::kAdvice);
  EXPECT_EQ(Find(findings, "telemetry.speed")->severity, Severity::kAdvice);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.remedy.empty(), finding.severity == Severity::kOk) << finding.id;
  }
}

TEST(CompareWithTelemetry, SaysLittleOfAnIdleServerAndWithoutAPlan) {
  const std::vector<Finding> idle = CompareWithTelemetry(TelemetrySnapshot(), std::nullopt);
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_THAT(idle[0].found, HasSubstr("too few tokens"));
  const std::vector<Finding> unplanned = CompareWithTelemetry(Served(), std::nullopt);
  EXPECT_EQ(Worst(unplanned), Severity::kOk);
  SpeedPlan broken;
  broken.fits = false;
  broken.trouble = "too large";
  EXPECT_EQ(CompareWithTelemetry(Served(), broken)[0].id, "telemetry.plan");
}

}  // namespace
}  // namespace hearth::cli
