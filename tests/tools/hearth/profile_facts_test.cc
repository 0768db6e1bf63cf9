// What the report says of a profile and a trace, against values worked out by hand, in all three of
// its forms; the page is whole, names nothing outside itself and lets no name break it.
#include "tools/hearth/profile_facts.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/prng.h"
#include "runtime/base/worker_team.h"
#include "tools/hearth/line_chart.h"
#include "tools/hearth/profile_page.h"

namespace hearth::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RoutingIdentity Shape(uint32_t layers, uint32_t experts, uint32_t ranks, bool has_mtp) {
  return {.model_xxh3_128 = std::string(32, 'a'),
          .tokenizer_xxh3_128 = std::string(32, 'b'),
          .layer_count = layers,
          .has_mtp = has_mtp,
          .expert_count = experts,
          .ranks = ranks};
}

// Two layers of five experts, one per token; the MTP layer was never run.
RoutingProfile SmallProfile() {
  return {.identity = Shape(2, 5, 1, true),
          .domains = {{.name = "a",
                       .token_count = 4,
                       .counts = {4, 0, 0, 0, 0,  //
                                  2, 2, 0, 0, 0,  //
                                  0, 0, 0, 0, 0}},
                      {.name = "<b>&\xc3\xa9",
                       .token_count = 2,
                       .counts = {0, 0, 0, 1, 1,  //
                                  2, 0, 0, 0, 0,  //
                                  0, 0, 0, 0, 0}}}};
}

TEST(ProfileFacts, AreWorkedOutOverAllLayers) {
  const ProfileFacts facts = FactsOf(SmallProfile());
  ASSERT_EQ(facts.domains.size(), 2u);
  // Ten experts: the hottest is half of a's traffic, the hottest four are all of it.
  EXPECT_EQ(facts.domains[0].hot_traffic[0], 0.5);
  EXPECT_EQ(facts.domains[0].hot_traffic[3], 1);
  EXPECT_EQ(facts.domains[1].hot_traffic[0], 0.5);
  EXPECT_EQ(facts.all.token_count, 6u);
  EXPECT_EQ(facts.all.hot_traffic[0], 4.0 / 12);
  EXPECT_EQ(facts.all.curve.size(), kCurveSteps + 1u);
  EXPECT_THAT(facts.layer_hot40[0], DoubleNear(5.0 / 6, 1e-12));
  EXPECT_TRUE(std::isnan(facts.layer_hot40[2])) << "no counts";
  EXPECT_THAT(facts.overlap[0], ElementsAre(1, 0.25));
  // a keeps experts 0 of both layers, 1 of the second and the first of those never chosen.
  EXPECT_THAT(facts.carry[0], ElementsAre(1, 0.5));
}

RouteTrace RandomTrace(const RoutingIdentity& identity, uint64_t tokens, uint64_t texts) {
  RouteTrace trace{.identity = identity};
  Prng prng(7);
  for (uint64_t token = 0; token < tokens; ++token) {
    if (token % (tokens / texts) == 0) trace.text_begins.push_back(token);
    for (uint32_t layer = 0; layer < identity.layer_count; ++layer) {
      // Neighbouring experts, so that those of a token are distinct; low ones more often.
      const auto first = static_cast<uint32_t>(prng.Uniform() * prng.Uniform() *
                                               (identity.expert_count - identity.ranks));
      for (uint32_t rank = 0; rank < identity.ranks; ++rank) {
        trace.routes.push_back(static_cast<uint16_t>(first + rank));
      }
    }
  }
  return trace;
}

TEST(ProfileFacts, TraceIsReplayedThroughEveryPolicy) {
  WorkerTeam team(2);
  const RouteTrace trace = RandomTrace(Shape(2, 32, 4, false), 2000, 4);
  uint64_t reported = 0;
  const absl::StatusOr<TraceFacts> facts =
      FactsOf(trace, 1000, team, [&](uint64_t done, uint64_t of) {
        ASSERT_LE(done, of);
        reported = done;
      });
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_GT(reported, 0u);
  EXPECT_EQ(facts->token_count, 2000u);
  EXPECT_EQ(facts->replayed_token_count, 1000u);
  EXPECT_EQ(facts->text_count, 4u);
  ASSERT_EQ(facts->distinct.size(), 8u);
  EXPECT_EQ(facts->distinct[0].mean, 4);
  EXPECT_GT(facts->distinct[3].mean, facts->distinct[2].mean);
  ASSERT_EQ(facts->replays.size(), 2u);
  for (const ReplayFacts& replay : facts->replays) {
    const HitCurve* const belady = replay.Find("belady");
    ASSERT_NE(belady, nullptr);
    for (const HitCurve& curve : replay.curves) {
      EXPECT_EQ(curve.hit_rate.size(), replay.slot_counts.size());
      for (size_t p = 0; p < curve.hit_rate.size(); ++p) {
        EXPECT_LE(curve.hit_rate[p], belady->hit_rate[p] + 0.02) << curve.policy;
      }
      EXPECT_GT(curve.hit_rate.back(), curve.hit_rate.front());
    }
    for (const std::string name : {"static", "lru", "two-scale", facts->default_policy.c_str()}) {
      EXPECT_NE(replay.Find(name), nullptr) << name;
    }
  }
}

TEST(ProfileFacts, EmptyTraceIsRefused) {
  WorkerTeam team(1);
  const RouteTrace trace{.identity = Shape(2, 32, 4, false)};
  EXPECT_FALSE(FactsOf(trace, 1000, team, [](uint64_t, uint64_t) {}).ok());
}

TEST(ProfileFacts, TextAndJsonSayTheSame) {
  const ProfileFacts facts = FactsOf(SmallProfile());
  std::ostringstream text;
  PrintFacts(facts, text);
  EXPECT_THAT(text.str(), HasSubstr("  a                  4   50.0%"));
  EXPECT_THAT(text.str(), HasSubstr("all texts          6   33.3%"));
  const nlohmann::ordered_json json = FactsJson(facts);
  EXPECT_EQ(json["domains"][0]["traffic_of_hottest"]["10%"], 0.5);
  EXPECT_EQ(json["carried_over"][0][1], 0.5);
  EXPECT_TRUE(json["layer_traffic"][2]["10%"].is_null());
  EXPECT_TRUE(json["trace"].is_null());
}

TEST(ProfileFacts, NamesArePaddedByCodePoints) {
  EXPECT_EQ(PaddedName("caf\xc3\xa9", 6), "caf\xc3\xa9  ");
  EXPECT_EQ(PaddedName("caf\xc3\xa9s", 4), "caf\xc3\xa9");
  EXPECT_EQ(PaddedName("", 2), "  ");
}

TEST(ProfilePage, HeatCellsAreEvenSharesInEighthsOfAnOctave) {
  const RoutingIdentity id = Shape(1, 4, 1, true);
  const std::vector<uint64_t> counts = {0, 1, 2, 1, 0, 0, 0, 0};
  const std::string cells = HeatCells(id, counts);
  ASSERT_EQ(cells.size(), 8u);
  EXPECT_EQ(cells[0], kCellAlphabet[0]);
  EXPECT_EQ(cells[1], kCellAlphabet[32]) << "an even share";
  EXPECT_EQ(cells[2], kCellAlphabet[40]) << "twice as much";
  EXPECT_EQ(cells.substr(4), std::string(4, kCellAlphabet[0]));
}

// Every element that is opened is closed, in order; void elements and SVG's own ending are known.
std::string MarkupFault(std::string_view html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string_view::npos) return "a tag without an end";
    const std::string_view tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    if (tag.starts_with('/')) {
      const std::string name(tag.substr(1));
      if (open.empty() || open.back() != name) return absl::StrCat("</", name, "> out of place");
      open.pop_back();
      continue;
    }
    const std::string name(tag.substr(0, tag.find_first_of(" \n")));
    if (name == "meta") continue;
    open.push_back(name);
    if (name == "script" || name == "style") {  // raw text up to the end tag
      at = html.find(absl::StrCat("</", name, ">"), end) - 1;
    }
  }
  return open.empty() ? "" : absl::StrCat("<", open.back(), "> left open");
}

TEST(ProfilePage, IsWellFormedAndNamesNothingOutsideItself) {
  WorkerTeam team(2);
  ProfileFacts facts = FactsOf(SmallProfile());
  facts.trace =
      *FactsOf(RandomTrace(Shape(2, 5, 1, false), 400, 2), 400, team, [](uint64_t, uint64_t) {});
  for (const bool with_trace : {true, false}) {
    if (!with_trace) facts.trace.reset();
    const std::string html = ProfilePage(SmallProfile(), facts);
    EXPECT_EQ(MarkupFault(html), "");
    for (const char* outside : {"http:", "https:", "//cdn", "@import", "url(", " src=", " href="}) {
      EXPECT_THAT(html, Not(HasSubstr(outside)));
    }
    EXPECT_THAT(html, Not(HasSubstr("<b>&\xc3"))) << "a name is text, not markup";
    EXPECT_THAT(html, HasSubstr("&lt;b&gt;&amp;\xc3\xa9"));
    EXPECT_EQ(html.find("nan"), std::string::npos) << "a layer without counts has no points";
    EXPECT_THAT(html, HasSubstr(with_trace ? "Windows of 4 tokens" : "Needs a trace"));
  }
}

TEST(ProfilePage, FullSizeModelStaysSmall) {
  const RoutingIdentity id = Shape(48, 512, 10, true);
  RoutingProfile profile{.identity = id};
  for (int d = 0; d < 30; ++d) {
    ProfileDomain domain{.name = absl::StrCat("domain ", d), .token_count = 512};
    for (uint32_t layer = 0; layer < id.all_layer_count(); ++layer) {
      for (uint32_t e = 0; e < id.expert_count; ++e) domain.counts.push_back(10);
    }
    profile.domains.push_back(std::move(domain));
  }
  ASSERT_TRUE(profile.Validate().ok()) << profile.Validate();
  const ProfileFacts facts = FactsOf(profile);
  EXPECT_EQ(facts.table.size(), kTableDomainsMax);
  EXPECT_NEAR(facts.all.hot_traffic[3], 0.4, 1e-9);
  const std::string html = ProfilePage(profile, facts);
  EXPECT_EQ(MarkupFault(html), "");
  EXPECT_LT(html.size(), 600'000u);
}

TEST(LineChart, PointsLieWhereTheAxesSay) {
  LineChart chart{.title = "A & B",
                  .x = {.title = "x", .minimum = 0, .maximum = 10, .ticks = {0, 5}},
                  .y = {.title = "y", .ticks = {1}, .format = TickFormat::kPercent},
                  .lines = {{.label = "one", .points = {{0, 0}, {10, 1, "tip <1>"}}, .colour = 9}},
                  .backdrop = {{.label = "far", .points = {{5, 0.5}}}},
                  .backdrop_label = "others"};
  const std::string svg = LineChartSvg(chart);
  EXPECT_EQ(MarkupFault(svg), "");
  EXPECT_THAT(svg, HasSubstr("points=\"56.0,290.0 504.0,14.0 \"")) << "corner to corner";
  EXPECT_THAT(svg, HasSubstr("line s1 dashed")) << "after eight colours";
  EXPECT_THAT(svg, HasSubstr("tip &lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  EXPECT_THAT(svg, HasSubstr(">100%<"));
  EXPECT_THAT(svg, HasSubstr(">others<"));
}

}  // namespace
}  // namespace hearth::cli
