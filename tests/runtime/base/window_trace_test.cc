// Traces parse back to what was added, stay within their room and put each span where viewers can
// draw it.
#include "runtime/base/window_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

std::vector<Json> EventsOf(const Json& trace, const char* phase) {
  std::vector<Json> events;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

// Name of the row of each thread id.
std::map<int, std::string> RowsOf(const Json& trace) {
  std::map<int, std::string> names;
  for (const Json& event : EventsOf(trace, "M")) {
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
  }
  return names;
}

TEST(WindowTrace, SpansParseBack) {
  WindowTrace trace(10);
  trace.Add({.name = "experts",
             .lane = TraceLane::kGpu,
             .begin_ns = 5'001'250,
             .end_ns = 5'003'000,
             .layer = LayerId(7),
             .expert_count = 31,
             .row_count = 4,
             .bytes = uint64_t{1} << 40});
  trace.Add({.name = "read",
             .lane = TraceLane::kNvme,
             .begin_ns = 5'000'000,
             .end_ns = 5'000'500,
             .expert = ExpertId(0)});
  trace.Add({.name = "down",
             .lane = TraceLane::kWorker,
             .number = 3,
             .begin_ns = 5'002'000,
             .end_ns = 5'001'000});  // ends before it begins: no time
  const Json parsed = Json::parse(trace.ToJson("window 12 of \"a\\b\"\n"));
  EXPECT_EQ(parsed.at("displayTimeUnit"), "ns");
  EXPECT_EQ(parsed.at("otherData").at("title"), "window 12 of \"a\\b\"\n");
  EXPECT_EQ(parsed.at("otherData").at("dropped_spans"), 0);
  const std::vector<Json> spans = EventsOf(parsed, "X");
  const std::map<int, std::string> rows = RowsOf(parsed);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("name"), "read");
  EXPECT_EQ(spans[0].at("ts"), 0.0);
  EXPECT_EQ(spans[0].at("dur"), 0.5);
  EXPECT_EQ(spans[0].at("args"), (Json{{"expert", 0}}));
  EXPECT_EQ(rows.at(spans[0].at("tid")), "NVMe");
  EXPECT_EQ(spans[1].at("ts"), 1.25);
  EXPECT_EQ(spans[1].at("dur"), 1.75);
  EXPECT_EQ(spans[1].at("args"),
            (Json{{"layer", 7}, {"experts", 31}, {"rows", 4}, {"bytes", uint64_t{1} << 40}}));
  EXPECT_EQ(rows.at(spans[1].at("tid")), "GPU");
  EXPECT_EQ(spans[2].at("dur"), 0.0);
  EXPECT_EQ(rows.at(spans[2].at("tid")), "CPU worker 3");
}

TEST(WindowTrace, AnEmptyTraceAndATitleThatIsNotUtf8AreValidToo) {
  const WindowTrace trace(0);
  const Json parsed = Json::parse(trace.ToJson("\xff\xfe window"));
  EXPECT_TRUE(EventsOf(parsed, "X").empty());
}

TEST(WindowTrace, KeepsToItsRoomAndCountsTheRest) {
  WindowTrace trace(100);
  std::vector<std::thread> threads;
  for (uint16_t worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (int i = 0; i < 40; ++i) {
        trace.Add({.name = "piece",
                   .lane = TraceLane::kWorker,
                   .number = worker,
                   .begin_ns = i * 10,
                   .end_ns = i * 10 + 10});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.span_count(), 100u);
  EXPECT_EQ(trace.dropped_count(), 60u);
  const Json parsed = Json::parse(trace.ToJson(""));
  EXPECT_EQ(EventsOf(parsed, "X").size(), 100u);
  EXPECT_EQ(parsed.at("otherData").at("dropped_spans"), 60);
  trace.Clear();
  EXPECT_EQ(trace.span_count(), 0u);
  EXPECT_EQ(trace.dropped_count(), 0u);
}

TEST(WindowTrace, KeepsWhatLiesInAWindow) {
  WindowTrace trace(5);
  const auto add = [&](int64_t begin_ns, int64_t end_ns) {
    trace.Add({.name = "copy", .lane = TraceLane::kCopy, .begin_ns = begin_ns, .end_ns = end_ns});
  };
  add(0, 900);  // before it
  add(500, 2'000);
  add(1'200, 1'300);
  add(1'900, 9'000);
  add(4'001, 9'000);  // after it
  add(1'500, 1'600);  // finds no room
  trace.Keep(1'000, 4'000);
  EXPECT_EQ(trace.span_count(), 3u);
  EXPECT_EQ(trace.dropped_count(), 1u);
  EXPECT_EQ(trace.BusyNs(TraceLane::kCopy, 0), 3'000);
  const std::vector<Json> spans = EventsOf(Json::parse(trace.ToJson("")), "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("dur"), 1.0);
  add(2'000, 2'100);  // there is room again
  EXPECT_EQ(trace.span_count(), 4u);
  trace.Clear();
  EXPECT_EQ(trace.dropped_count(), 0u);
}

// In every row, two spans are apart or one holds the other.
TEST(WindowTrace, OverlappingSpansGetRowsOfTheirOwn) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Prng prng(seed);
    WindowTrace trace(200);
    for (int i = 0; i < 200; ++i) {
      const auto begin_ns = static_cast<int64_t>(prng.Below(3000));
      trace.Add({.name = "read",
                 .lane = prng.Below(4) == 0 ? TraceLane::kPass : TraceLane::kNvme,
                 .begin_ns = begin_ns,
                 .end_ns = begin_ns + static_cast<int64_t>(1 + prng.Below(200))});
    }
    const Json parsed = Json::parse(trace.ToJson(""));
    std::map<int, std::vector<std::pair<double, double>>> rows;
    for (const Json& span : EventsOf(parsed, "X")) {
      const double begin = span.at("ts"), end = begin + span.at("dur").get<double>();
      for (const auto& [other_begin, other_end] : rows[span.at("tid")]) {
        const bool apart = end <= other_begin + 1e-6 || other_end <= begin + 1e-6;
        const bool within = (begin >= other_begin - 1e-6 && end <= other_end + 1e-6) ||
                            (other_begin >= begin - 1e-6 && other_end <= end + 1e-6);
        ASSERT_TRUE(apart || within) << "seed " << seed;
      }
      rows[span.at("tid")].emplace_back(begin, end);
    }
    EXPECT_EQ(rows.size(), RowsOf(parsed).size());
  }
}

TEST(WindowTrace, BusyTimeCountsOverlapsOnce) {
  WindowTrace trace(10);
  const auto add = [&](int64_t begin_ns, int64_t end_ns) {
    trace.Add({.name = "read", .lane = TraceLane::kNvme, .begin_ns = begin_ns, .end_ns = end_ns});
  };
  add(100, 200);
  add(150, 260);
  add(120, 130);
  add(400, 410);
  EXPECT_EQ(trace.BusyNs(TraceLane::kNvme, 0), 170);
  EXPECT_EQ(trace.BusyNs(TraceLane::kNvme, 1), 0);
  EXPECT_EQ(trace.BusyNs(TraceLane::kGpu, 0), 0);
}

}  // namespace
}  // namespace hearth
