// One window out of many is kept: the one that was asked for, or the last. Its spans lie within it,
// on a lane for each side of the machine that had a part in it, and nothing else changes.
#include "runtime/engine/window_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/store/block_layout.h"
#include "runtime/base/check.h"
#include "runtime/base/prng.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint32_t kRows = 3;

RunnerSetup SetupOf(const ExpertOptions& experts) {
  return {.options = {.limits = {.prompt_rows_max = 32, .window_rows_max = 4}, .experts = experts}};
}

// Some experts in slots, some uploaded, some read from the drive.
ExpertOptions AllTiers(const std::string& pack_dir) {
  const absl::StatusOr<Pack> pack = Pack::Open(pack_dir);
  HEARTH_CHECK(pack.ok());
  ExpertOptions options;
  options.ram = RamTier::kBudget;
  options.ram_budget_bytes = LeastBlockBytes(pack->experts) + AllBlockBytes(pack->experts) / 4;
  options.slots = SlotBudget{.share = 0.3};
  options.pcie_share = 1;
  return options;
}

// Windows after a prompt, in `tracer` unless it is null; logits of all of them.
std::vector<float> RunWindows(ModelRunner& runner, uint32_t count, WindowTracer* tracer) {
  const auto sequence = *runner.CreateSequence(128);
  const uint32_t vocab = runner.geometry().vocab_count;
  Prng prng(7);
  std::vector<float> all;
  const auto pass = [&](uint32_t rows, Phase phase) -> absl::Status {
    std::vector<TokenId> tokens;
    for (uint32_t r = 0; r < rows; ++r) tokens.push_back(static_cast<TokenId>(prng.Below(vocab)));
    const Segment segment{.sequence = sequence.get(), .tokens = tokens};
    absl::Status status = runner.RunTrunk({&segment, 1}, phase);
    if (!status.ok()) return status;
    all.resize(all.size() + vocab);
    status = runner.Head(rows - 1, 1, std::span(all).last(vocab));
    if (!status.ok()) return status;
    return runner.Commit(*sequence, rows);
  };
  EXPECT_EQ(pass(20, Phase::kPrompt), absl::OkStatus());
  for (uint32_t w = 0; w < count; ++w) {
    EXPECT_TRUE(tracer == nullptr || tracer->Begin().ok());
    EXPECT_EQ(pass(kRows, Phase::kWindow), absl::OkStatus());
    EXPECT_TRUE(tracer == nullptr || tracer->End().ok());
  }
  return all;
}

std::vector<Json> SpansOf(const WindowTracer& tracer) {
  const absl::StatusOr<std::string> text = tracer.ToJson("test");
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<Json> spans;
  if (!text.ok()) return spans;
  const Json parsed = Json::parse(*text);
  for (const Json& event : parsed.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
  }
  return spans;
}

TEST(WindowTracer, KeepsTheWindowThatWasAskedFor) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  LoadedRunner runner(pack.dir(), SetupOf({}));
  for (const std::optional<uint64_t> index :
       {std::optional<uint64_t>(), std::optional<uint64_t>(1)}) {
    WindowTracer tracer(*runner, index);
    EXPECT_THAT(std::string(tracer.ToJson("test").status().message()),
                HasSubstr("no window was run"));
    (void)RunWindows(*runner, 4, &tracer);
    EXPECT_EQ(tracer.window_count(), 4u);
    const absl::StatusOr<std::string> json = tracer.ToJson("test");
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_EQ(Json::parse(*json).at("otherData").at("title"),
              index ? "test, window 1" : "test, window 3");
  }
  WindowTracer beyond(*runner, 9);
  (void)RunWindows(*runner, 2, &beyond);
  const absl::Status status = beyond.ToJson("test").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("window 9 was asked for, found 2 windows, numbered from 0"));
}

TEST(WindowTracer, EverySideHasALaneAndNothingLiesOutsideTheWindow) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  LoadedRunner runner(pack.dir(), SetupOf(AllTiers(pack.dir())));
  WindowTracer tracer(*runner, std::nullopt);
  const std::vector<float> logits = RunWindows(*runner, 6, &tracer);
  EXPECT_EQ(tracer.trace().dropped_count(), 0u);
  std::map<std::string, std::set<std::string>> names;  // by lane
  const std::vector<Json> spans = SpansOf(tracer);
  ASSERT_FALSE(spans.empty());
  const Json window =
      *std::ranges::find_if(spans, [](const Json& s) { return s["name"] == "window"; });
  const double end = window.at("ts").get<double>() + window.at("dur").get<double>();
  const uint32_t layers = runner->geometry().layer_count();
  std::set<int> seen;
  for (const Json& span : spans) {
    names[span.at("cat")].insert(span.at("name"));
    EXPECT_GE(span.at("ts"), window.at("ts"));
    EXPECT_LE(span.at("ts").get<double>() + span.at("dur").get<double>(), end + 0.002);
    if (span.at("name") == "experts") seen.insert(span.at("args").at("layer").get<int>());
  }
  EXPECT_EQ(seen.size(), layers);
  EXPECT_THAT(names["CPU passes"],
              testing::IsSupersetOf({"trunk", "first half", "experts", "plan", "CPU's experts",
                                     "second half", "head", "commit", "window"}));
  EXPECT_THAT(names["CPU worker"], testing::IsSupersetOf({"gate, up", "down"}));
  EXPECT_THAT(names["NVMe"], testing::Contains("read"));
  EXPECT_THAT(names["copy"], testing::Contains("upload"));
  EXPECT_TRUE(names["GPU"].empty()) << "there is none";
  LoadedRunner untraced(pack.dir(), SetupOf(AllTiers(pack.dir())));
  EXPECT_EQ(RunWindows(*untraced, 6, nullptr), logits);
}

TEST(WindowTracer, AWindowThatIsNotEndedIsNotKept) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  LoadedRunner runner(pack.dir(), SetupOf({}));
  {
    WindowTracer tracer(*runner, std::nullopt);
    ASSERT_TRUE(tracer.Begin().ok());
    EXPECT_FALSE(tracer.ToJson("test").ok());
  }
  (void)RunWindows(*runner, 1, nullptr);  // into no trace that is gone
}

}  // namespace
}  // namespace hearth
