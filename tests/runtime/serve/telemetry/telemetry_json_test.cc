// What a snapshot says survives JSON and back; what is not defined is null; shares add up to the
// whole; a file that is wrong says where. FAULTS.md B38.
#include "runtime/serve/telemetry/telemetry_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// RFC 8259: nlohmann accepts neither NaN nor Infinity.
Json Strict(const TelemetrySnapshot& snapshot) { return Json::parse(TelemetryJson(snapshot)); }

TEST(TelemetryJson, EveryNumberSurvivesTheWayThereAndBack) {
  const std::string text = TelemetryJson(FullSnapshot());
  const absl::StatusOr<TelemetrySnapshot> back = ParseTelemetry(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Json::parse(TelemetryJson(*back)), Json::parse(text));
  EXPECT_EQ(back->engine.total().services, FullSnapshot().engine.total().services);
  EXPECT_EQ(back->engine.serve.finished, FullSnapshot().engine.serve.finished);
  EXPECT_EQ(back->engine.prefix, FullSnapshot().engine.prefix);
  EXPECT_EQ(back->facts.model, FullSnapshot().facts.model);
}

// Any two numbers of the full snapshot differ: a member that is written twice or under another's
// name changes the text of another.
TEST(TelemetryJson, TheWholeTreeOfNamesIsTheDocumentedOne) {
  const Json json = Strict(FullSnapshot());
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names,
              testing::UnorderedElementsAre(
                  "schema", "schema_version", "server", "requests", "tokens", "latency", "windows",
                  "drafts", "services", "layers", "slots", "regret", "ram_tier", "dense_bytes",
                  "channels", "memory", "prefix_cache", "http", "process", "recent", "history"));
  EXPECT_EQ(json["schema"], "hearth.telemetry");
  EXPECT_EQ(json["schema_version"], 1);
}

TEST(TelemetryJson, OneLine) {
  EXPECT_EQ(TelemetryJson(FullSnapshot()).find('\n'), std::string::npos);
}

TEST(TelemetryJson, BeforeAnythingHappenedRatesAreNull) {
  const Json json = Strict(EmptySnapshot());
  EXPECT_TRUE(json["drafts"]["rate"].is_null());
  EXPECT_TRUE(json["tokens"]["reused_share"].is_null());
  EXPECT_TRUE(json["windows"]["mean_rows"].is_null());
  EXPECT_TRUE(json["latency"]["time_to_first_token"]["p99_sec"].is_null());
  EXPECT_TRUE(json["services"]["permille"]["distinct"].is_null());
  EXPECT_TRUE(json["services"]["permille"]["time"].is_null());
  EXPECT_TRUE(json["recent"]["output_tokens_per_sec"].is_null());
  EXPECT_TRUE(json["recent"]["acceptance"].is_null());
  EXPECT_TRUE(json["regret"]["hit_rate"].is_null());
  EXPECT_TRUE(json["prefix_cache"]["hit_rate"].is_null());
  EXPECT_TRUE(json["channels"]["drive"]["bytes_per_sec"].is_null());
  EXPECT_TRUE(json["channels"]["drive"]["measured_bytes_per_sec"].is_null());
  EXPECT_TRUE(json["memory"]["ram"]["used_bytes"].is_null());
  EXPECT_TRUE(ParseTelemetry(json.dump()).ok());
}

TEST(TelemetryJson, WithoutSlotsThereIsNoGauge) {
  TelemetrySnapshot s = EmptySnapshot();
  s.engine.slots.present = false;
  const Json json = Strict(s);
  EXPECT_TRUE(json["slots"].is_null());
  EXPECT_TRUE(json["regret"].is_null());
  EXPECT_FALSE(ParseTelemetry(json.dump())->engine.slots.present);
}

TEST(TelemetryJson, HandCountedLookupsAreWhatWasCounted) {
  const Json json = Strict(HandCountedSnapshot());
  const Json& services = json["services"];
  EXPECT_EQ(services["vram"]["distinct"], 3);
  EXPECT_EQ(services["pcie"]["distinct"], 0);
  EXPECT_EQ(services["cpu"]["distinct"], 2);
  EXPECT_EQ(services["ssd"]["distinct"], 3);
  EXPECT_EQ(services["permille"]["distinct"], Json({375, 0, 250, 375}));
  EXPECT_EQ(services["passes"], 1);
  // A read ahead counts as used only when it was needed; the drive's bytes are all that was read.
  EXPECT_EQ(json["ram_tier"]["reads"], 4);
  EXPECT_EQ(json["ram_tier"]["lookahead_reads"], 2);
  EXPECT_EQ(json["ram_tier"]["lookahead_used"], 1);
  EXPECT_EQ(json["channels"]["drive"]["bytes"], 4000);
  EXPECT_EQ(json["layers"][0]["distinct"], Json({3, 0, 2, 3}));
  EXPECT_EQ(json["layers"][1]["distinct"], Json({0, 0, 0, 0}));
}

TEST(TelemetryJson, SharesAddUpToTheWholeWhateverTheCounts) {
  TelemetrySnapshot s = EmptySnapshot();
  for (uint64_t seed = 1; seed < 200; ++seed) {
    for (uint32_t v = 0; v < kServiceCount; ++v) {
      const uint64_t n = (seed * 7919 + v * 104729) % 97;
      s.engine.layers[0].services[v] = {
          .distinct = n, .entries = n * 3, .bytes = n << 40, .ns = static_cast<int64_t>(n)};
    }
    const Json shares = Strict(s)["services"]["permille"];
    for (const char* what : {"distinct", "entries", "bytes", "time"}) {
      const auto parts = shares[what].get<std::vector<int>>();
      ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), 0), 1000) << what << seed;
    }
  }
}

TEST(TelemetryJson, NoTokenACancelledAndAFullyCachedRequestLeaveNumbers) {
  TelemetrySnapshot s = EmptySnapshot();
  ServeCounters& c = s.engine.serve;
  // Cancelled in the queue: no token, no first token, no time.
  c.submitted = 2;
  c.finished[static_cast<size_t>(FinishReason::kCancelled)] = 1;
  c.request_time.Add(0);
  // Fully cached: nothing computed, the first token at once.
  c.finished[static_cast<size_t>(FinishReason::kStop)] = 1;
  c.reused_tokens = 100;
  c.output_tokens = 1;
  c.first_token.Add(0);
  // Decoding, begun this very nanosecond.
  c.shown_count = 2;
  c.shown[0] = {.phase = RequestPhase::kDecoding, .output_tokens = 5, .first_token_ns = 0};
  c.shown[1] = {.phase = RequestPhase::kDecoding, .output_tokens = 1, .first_token_ns = 0};
  const Json json = Strict(s);
  EXPECT_EQ(json["tokens"]["reused_share"], 1.0);
  EXPECT_EQ(json["latency"]["time_to_first_token"]["mean_sec"], 0.0);
  EXPECT_TRUE(json["requests"]["in_flight"][0]["tokens_per_sec"].is_null());
  EXPECT_TRUE(json["requests"]["in_flight"][1]["tokens_per_sec"].is_null());
  EXPECT_EQ(json["requests"]["finished"]["cancelled"], 1);
}

TEST(TelemetryJson, WhatIsNotFiniteIsNull) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TelemetrySnapshot s = EmptySnapshot();
  s.facts.max_bytes_per_sec = {kInfinity, -kInfinity, std::nan(""), 1.0};
  s.peak_bytes_per_sec = {kInfinity, 0, 0, 0};
  s.history = {{.output_tokens_per_sec = std::numeric_limits<float>::infinity(),
                .prompt_tokens_per_sec = std::nanf("")}};
  const Json json = Strict(s);
  EXPECT_TRUE(json["channels"]["card"]["measured_bytes_per_sec"].is_null());
  EXPECT_TRUE(json["channels"]["dram"]["measured_bytes_per_sec"].is_null());
  EXPECT_TRUE(json["channels"]["card"]["peak_bytes_per_sec"].is_null());
  EXPECT_TRUE(json["history"]["output_tokens_per_sec"][0].is_null());
}

TEST(TelemetryJson, BytesThatAreNoTextAreReplaced) {
  TelemetrySnapshot s = EmptySnapshot();
  s.facts.pack = "bad \xff name";
  EXPECT_TRUE(ParseTelemetry(TelemetryJson(s)).ok());
}

TEST(ParseTelemetry, WhatIsWrongIsNamed) {
  const Json good = Strict(FullSnapshot());
  const auto error = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    return std::string(ParseTelemetry(bad.dump()).status().message());
  };
  EXPECT_THAT(error("/requests/queued", -1), HasSubstr("requests.queued"));
  EXPECT_THAT(error("/requests/queued", uint64_t{1} << 40), HasSubstr("requests.queued"));
  EXPECT_THAT(error("/server/model", 7), HasSubstr("server.model: expected text"));
  EXPECT_THAT(error("/server/uptime_sec", 1e300), HasSubstr("server.uptime_sec"));
  EXPECT_THAT(error("/layers/1/bytes", Json::array({1, 2, 3})), HasSubstr("layers[1].bytes"));
  EXPECT_THAT(error("/slots/pinned", nullptr), HasSubstr("slots.pinned"));
  EXPECT_THAT(error("/history/vram_share", Json::array()), HasSubstr("history.vram_share"));
  EXPECT_THAT(error("/latency/bucket_bounds_sec/3", 0.5), HasSubstr("bucket_bounds_sec"));
  EXPECT_THAT(error("/schema", "other"), HasSubstr("schema"));
  EXPECT_THAT(error("/requests", "text"), HasSubstr("requests"));
}

TEST(ParseTelemetry, EveryMissingMemberIsAnError) {
  const Json good = Strict(FullSnapshot());
  for (const auto& [name, value] : good.items()) {
    if (name == "services") continue;  // the sum of the layers
    Json bad = good;
    bad.erase(name);
    EXPECT_FALSE(ParseTelemetry(bad.dump()).ok()) << name;
  }
}

TEST(ParseTelemetry, ANewerSchemaIsRefusedWithARemedyAndNewMembersAreNot) {
  Json json = Strict(FullSnapshot());
  json["something_more"] = 1;
  json["server"]["something_more"] = 1;
  EXPECT_TRUE(ParseTelemetry(json.dump()).ok());
  json["schema_version"] = 2;
  const absl::Status status = ParseTelemetry(json.dump()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the program that the server came with"));
}

TEST(ParseTelemetry, GarbageIsAnError) {
  const std::string text = TelemetryJson(FullSnapshot());
  for (const std::string& bad :
       {std::string(), std::string("null"), std::string("[]"), std::string("{}"),
        text.substr(0, text.size() / 2), std::string(100'000, '['), std::string(5 << 20, ' ')}) {
    EXPECT_FALSE(ParseTelemetry(bad).ok());
  }
}

TEST(ParseTelemetry, MoreListItemsThanThereMayBeAreRefused) {
  Json json = Strict(FullSnapshot());
  const Json one = json["requests"]["in_flight"][0];
  for (int i = 0; i < 100; ++i) json["requests"]["in_flight"].push_back(one);
  EXPECT_FALSE(ParseTelemetry(json.dump()).ok());
  json = Strict(FullSnapshot());
  const Json position = json["drafts"]["by_position"][0];
  for (int i = 0; i < 100; ++i) json["drafts"]["by_position"].push_back(position);
  EXPECT_FALSE(ParseTelemetry(json.dump()).ok());
}

}  // namespace
}  // namespace hearth
