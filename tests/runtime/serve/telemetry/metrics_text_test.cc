// The text is what a strict reader takes, says what the snapshot says, and has every name that the
// dashboard and the document use.
#include "runtime/serve/telemetry/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "runtime/base/file.h"
#include "tests/runtime/serve/telemetry/metrics_parser.h"
#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth {
namespace {

using Families = std::map<std::string, MetricFamily>;

Families FullFamilies() { return ParseMetrics(MetricsText(FullSnapshot())); }

// Every metric name in a text.
std::set<std::string> NamesIn(const std::string& text) {
  static const std::regex kName("hearth_[a-z0-9_]+");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), kName), end; it != end; ++it) {
    names.insert(it->str());
  }
  return names;
}

std::string SourceFile(const std::string& path) {
  const auto text = ReadFile(std::string(HEARTH_SOURCE_DIR "/") + path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(MetricsText, EmptyAndFullSnapshotsAreStrictText) {
  EXPECT_GT(FullFamilies().size(), 50u);
  EXPECT_GT(ParseMetrics(MetricsText(EmptySnapshot())).size(), 50u);
  EXPECT_GT(ParseMetrics(MetricsText(TelemetrySnapshot())).size(), 50u);
}

TEST(MetricsText, NamesKeepToTheCustoms) {
  for (const auto& [name, family] : FullFamilies()) {
    EXPECT_TRUE(name.starts_with("hearth_")) << name;
    EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
    EXPECT_TRUE(family.help.ends_with(".")) << name;
    EXPECT_FALSE(family.values.empty()) << name;
  }
}

TEST(MetricsText, SaysWhatTheSnapshotSays) {
  const TelemetrySnapshot s = FullSnapshot();
  Families all = FullFamilies();
  const auto value = [&](const std::string& family, const std::string& labels) {
    return all[family].values.at(family + labels);
  };
  EXPECT_EQ(value("hearth_requests", "{phase=\"reading\"}"), s.engine.serve.reading);
  EXPECT_EQ(value("hearth_output_tokens_total", ""), s.engine.serve.output_tokens);
  EXPECT_EQ(value("hearth_requests_finished_total", "{reason=\"cancelled\"}"),
            s.engine.serve.finished[3]);
  EXPECT_EQ(value("hearth_requests_refused_total", "{reason=\"context\"}"),
            s.engine.serve.refused[1]);
  EXPECT_EQ(value("hearth_experts_total", "{service=\"ssd\"}"),
            s.engine.total().of(Service::kSsd).distinct);
  EXPECT_EQ(value("hearth_layer_experts_total", "{layer=\"2\",service=\"cpu\"}"),
            s.engine.layers[2].of(Service::kCpu).distinct);
  EXPECT_EQ(value("hearth_drafts_accepted_total", "{position=\"8\"}"), s.engine.serve.accepted[7]);
  EXPECT_EQ(value("hearth_memory_planned_bytes", "{memory=\"vram\"}"), s.facts.memory[0].bytes);
  EXPECT_EQ(value("hearth_regret_belady_hit_rate", ""), 0.75);
  EXPECT_FALSE(all["hearth_channel_measured_bytes_per_second"].values.contains(
      "hearth_channel_measured_bytes_per_second{channel=\"drive\"}"));
}

TEST(MetricsText, HistogramsRiseAndEndInTheirCount) {
  const std::string name = "hearth_time_to_first_token_seconds";
  const MetricFamily family = FullFamilies()[name];
  double last = -1;
  const std::string text = MetricsText(FullSnapshot());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "_bucket")) continue;
    const double value = std::stod(line.substr(line.rfind(' ')));
    EXPECT_GE(value, last);
    last = value;
  }
  EXPECT_EQ(last, family.values.at(name + "_count"));
  EXPECT_EQ(last, static_cast<double>(FullSnapshot().engine.serve.first_token.count()));
}

TEST(MetricsText, CountersAreExactToTheLastBit) {
  TelemetrySnapshot s = EmptySnapshot();
  s.engine.store.read_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(MetricsText(s),
              testing::HasSubstr("hearth_drive_read_bytes_total 18446744073709551615\n"));
}

TEST(MetricsText, LabelsAreEscaped) {
  EXPECT_THAT(MetricsText(FullSnapshot()),
              testing::HasSubstr("model=\"a \\\"model\\\"\\n\\\\ and more\""));
}

TEST(MetricsText, WhatIsNotDefinedIsLeftOut) {
  const Families all = ParseMetrics(MetricsText(EmptySnapshot()));
  EXPECT_TRUE(all.at("hearth_regret_hit_rate").values.empty());
  EXPECT_TRUE(all.at("hearth_channel_measured_bytes_per_second").values.empty());
}

TEST(MetricsText, TheDashboardNamesOnlyWhatThereIs) {
  const std::string text = SourceFile("tools/grafana/hearth.json");
  const nlohmann::json dashboard = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(dashboard.is_discarded());
  std::string queries;
  for (const auto& panel : dashboard["panels"]) {
    for (const auto& target : panel.value("targets", nlohmann::json::array())) {
      queries += target["expr"].get<std::string>() + "\n";
    }
  }
  const std::set<std::string> there = NamesIn(MetricsText(FullSnapshot()));
  const std::set<std::string> asked = NamesIn(queries);
  EXPECT_GT(asked.size(), 20u);
  for (const std::string& name : asked) EXPECT_TRUE(there.contains(name)) << name;
}

TEST(MetricsText, TheDocumentNamesEveryMetricAndNoOther) {
  const std::set<std::string> documented =
      NamesIn(SourceFile("runtime/serve/telemetry/TELEMETRY.md"));
  std::set<std::string> there;
  for (const auto& [name, family] : FullFamilies()) there.insert(name);
  EXPECT_EQ(documented, there);
}

}  // namespace
}  // namespace hearth
