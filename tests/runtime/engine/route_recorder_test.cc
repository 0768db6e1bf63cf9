// What the recorder counts is what the model chose: against the golden routes of the reference
// implementation, in passes of any length, and against routes written by hand.
#include "runtime/engine/route_recorder.h"

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/engine/profile_file.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

RoutingIdentity SmallIdentity(bool has_mtp = false) {
  return {.model_xxh3_128 = std::string(32, 'a'),
          .tokenizer_xxh3_128 = std::string(32, 'b'),
          .layer_count = 2,
          .has_mtp = has_mtp,
          .expert_count = 4,
          .ranks = 2};
}

void Pass(RouteRecorder& recorder, uint32_t layer, const std::vector<uint32_t>& experts) {
  recorder.OnRoutes(LayerId(layer), {.expert = experts,
                                     .weight = {},
                                     .rows = static_cast<uint32_t>(experts.size() / 2),
                                     .ranks = 2});
}

TEST(RouteRecorder, CountsByDomainAndTracesInTokenOrder) {
  RouteRecorder recorder(SmallIdentity(), {.trace_tokens_max = 10});
  ASSERT_TRUE(recorder.BeginText("a").ok());
  Pass(recorder, 0, {0, 1, 1, 2});
  Pass(recorder, 1, {3, 2, 3, 1});
  ASSERT_TRUE(recorder.BeginText("b").ok());
  Pass(recorder, 0, {0, 3});
  Pass(recorder, 1, {0, 1});
  ASSERT_TRUE(recorder.BeginText("a").ok());
  Pass(recorder, 0, {2, 1});
  Pass(recorder, 1, {1, 3});
  const RoutingProfile profile = recorder.profile();
  ASSERT_TRUE(profile.Validate().ok()) << profile.Validate();
  ASSERT_EQ(profile.domains.size(), 2u);
  EXPECT_EQ(profile.domains[0].token_count, 3u);
  EXPECT_THAT(profile.domains[0].counts, ElementsAre(1, 3, 2, 0, 0, 2, 1, 3));
  EXPECT_THAT(profile.domains[1].counts, ElementsAre(1, 0, 0, 1, 1, 1, 0, 0));
  EXPECT_THAT(recorder.trace().text_begins, ElementsAre(0, 2, 3));
  EXPECT_THAT(recorder.trace().routes, ElementsAre(0, 1, 3, 2, 1, 2, 3, 1, 0, 3, 0, 1, 2, 1, 1, 3));
  EXPECT_EQ(recorder.trace().of(1, 1)[1], 1);
}

TEST(RouteRecorder, TraceIsBoundedAndCountsAreNot) {
  RouteRecorder recorder(SmallIdentity(), {.trace_tokens_max = 3});
  ASSERT_TRUE(recorder.BeginText("a").ok());
  for (int i = 0; i < 2; ++i) {
    Pass(recorder, 0, {0, 1, 0, 1});
    Pass(recorder, 1, {0, 1, 0, 1});
  }
  ASSERT_TRUE(recorder.BeginText("b").ok());
  Pass(recorder, 0, {0, 1});
  Pass(recorder, 1, {0, 1});
  EXPECT_EQ(recorder.trace().token_count(), 3u);
  EXPECT_EQ(recorder.untraced_token_count(), 2u);
  EXPECT_THAT(recorder.trace().text_begins, ElementsAre(0));
  EXPECT_EQ(recorder.profile().token_count(), 5u);
}

TEST(RouteRecorder, PassThatFailedLeavesNothing) {
  RouteRecorder recorder(SmallIdentity(), {.trace_tokens_max = 10});
  ASSERT_TRUE(recorder.BeginText("a").ok());
  Pass(recorder, 0, {0, 1});  // the last layer never comes
  EXPECT_TRUE(recorder.profile().domains.empty());
  Pass(recorder, 0, {2, 3});
  Pass(recorder, 1, {2, 3});
  EXPECT_THAT(recorder.profile().domains[0].counts, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_EQ(recorder.trace().token_count(), 1u);
}

TEST(RouteRecorder, DraftRowsCountUpToTheTrunks) {
  RouteRecorder recorder(SmallIdentity(/*has_mtp=*/true), {});
  ASSERT_TRUE(recorder.BeginText("a").ok());
  Pass(recorder, 0, {0, 1, 0, 1});
  Pass(recorder, 1, {0, 1, 0, 1});
  Pass(recorder, 2, {0, 1});
  Pass(recorder, 2, {2, 3, 2, 3, 2, 3});  // one of these three fits
  EXPECT_THAT(recorder.profile().domains[0].counts, ElementsAre(2, 2, 0, 0,  //
                                                                2, 2, 0, 0,  //
                                                                1, 1, 1, 1));
  EXPECT_TRUE(recorder.profile().Validate().ok());
}

TEST(RouteRecorder, DistinctExpertsPerWindow) {
  RouteRecorder recorder(SmallIdentity(), {});
  ASSERT_TRUE(recorder.BeginText("a").ok());
  EXPECT_EQ(recorder.DistinctPerWindow("a", 1), 0) << "no windows";
  Pass(recorder, 0, {0, 1, 1, 2, 3, 2, 0, 1, 2, 3});
  Pass(recorder, 1, {0, 1, 0, 1, 0, 1, 0, 1, 2, 3});
  EXPECT_EQ(recorder.DistinctPerWindow("a", 1), 2);
  // Windows of two: {0 1 2} and {0 1 2 3}, then {0 1} twice; the fifth row is left over.
  EXPECT_EQ(recorder.DistinctPerWindow("a", 2), (3 + 4 + 2 + 2) / 4.0);
  EXPECT_EQ(recorder.DistinctPerWindow("a", 4), (4 + 2) / 2.0);
  EXPECT_EQ(recorder.DistinctPerWindow("a", 8), 0);
  EXPECT_EQ(recorder.DistinctPerWindow("b", 2), 0);
}

TEST(RouteRecorder, DomainsAreBounded) {
  RouteRecorder recorder(SmallIdentity(), {});
  for (uint32_t i = 0; i < kProfileDomainsMax; ++i) {
    ASSERT_TRUE(recorder.BeginText(std::to_string(i)).ok());
  }
  EXPECT_TRUE(recorder.BeginText("7").ok()) << "known";
  EXPECT_EQ(recorder.BeginText("more").code(), absl::StatusCode::kResourceExhausted);
}

// The model that ships with the project, in the arithmetic of the golden values.
class FlashletRoutes : public testing::Test {
 protected:
  void SetUp() override {
    pack_ =
        std::make_unique<TemporaryPack>(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kBf16);
    runner_ = std::make_unique<LoadedRunner>(
        pack_->dir(), RunnerSetup{.options = {.arithmetic = Arithmetic::kReference,
                                              .limits = {.prompt_rows_max = 64}}});
    identity_ = IdentityOf((*runner_)->pack().manifest);
  }
  std::vector<TokenId> Ids(const std::string& prompt) {
    const std::vector<int32_t> ids = golden_.Get<int32_t>(prompt + ".ids");
    return {ids.begin(), ids.end()};
  }

  GoldenFile golden_{HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors"};
  std::unique_ptr<TemporaryPack> pack_;
  std::unique_ptr<LoadedRunner> runner_;
  RoutingIdentity identity_;
};

TEST_F(FlashletRoutes, CountsAndTraceAreTheGoldenRoutes) {
  RouteRecorder recorder(identity_, {.trace_tokens_max = 1 << 16});
  uint64_t tokens = 0, entries = 0, entries_off = 0;
  std::vector<uint64_t> golden_counts(size_t{identity_.layer_count} * identity_.expert_count);
  for (const std::string prompt : {"code", "prose", "chat", "zh"}) {
    const std::vector<TokenId> ids = Ids(prompt);
    ASSERT_TRUE(RecordText(**runner_, recorder, prompt, ids, {}).ok());
    const std::vector<int16_t> golden = golden_.Get<int16_t>(prompt + ".route");
    ASSERT_EQ(golden.size(), ids.size() * identity_.layer_count * identity_.ranks);
    for (size_t i = 0; i < golden.size(); ++i) {
      const size_t layer = i / (ids.size() * identity_.ranks);
      const size_t token = i / identity_.ranks % ids.size();
      const auto ours = recorder.trace().of(tokens + token, static_cast<uint32_t>(layer));
      ++golden_counts[layer * identity_.expert_count + static_cast<size_t>(golden[i])];
      ++entries;
      entries_off += ours[i % identity_.ranks] != golden[i];
    }
    tokens += ids.size();
  }
  // Near ties may fall either way: as few as the golden test of the model itself allows.
  EXPECT_LE(entries_off * 1000, entries);
  const RoutingProfile profile = recorder.profile();
  ASSERT_TRUE(profile.Validate().ok()) << profile.Validate();
  EXPECT_EQ(profile.token_count(), tokens);
  EXPECT_EQ(profile.domains.size(), 4u);
  const std::vector<uint64_t> counts = profile.Counts();
  uint64_t counts_off = 0;
  for (size_t i = 0; i < golden_counts.size(); ++i) {
    counts_off += std::max(counts[i], golden_counts[i]) - std::min(counts[i], golden_counts[i]);
  }
  EXPECT_LE(counts_off, 2 * entries_off);
  const uint64_t draft_entries = std::accumulate(
      counts.begin() + static_cast<ptrdiff_t>(golden_counts.size()), counts.end(), uint64_t{0});
  EXPECT_EQ(draft_entries, (tokens - 4) * identity_.ranks) << "all positions but each text's last";
}

TEST_F(FlashletRoutes, ChunksAndObserversChangeNothing) {
  std::vector<TokenId> ids = Ids("prose");
  ids.resize(150);
  RouteRecorder whole(identity_, {.trace_tokens_max = 1000});
  uint64_t progress = 0;
  ASSERT_TRUE(RecordText(**runner_, whole, "p", ids, {.progress = [&](uint64_t done) {
                progress = done;
              }}).ok());
  EXPECT_EQ(progress, 150u);
  LoadedRunner other(pack_->dir(), RunnerSetup{.options = {.arithmetic = Arithmetic::kReference,
                                                           .limits = {.prompt_rows_max = 37}}});
  RouteRecorder chunks(identity_, {.trace_tokens_max = 1000});
  ASSERT_TRUE(RecordText(*other, chunks, "p", ids, {}).ok());
  EXPECT_EQ(whole.trace().routes, chunks.trace().routes);
  EXPECT_EQ(whole.profile().ToJson(), chunks.profile().ToJson());
  // Parts of a text begin afresh, and the trace says where.
  RouteRecorder parts(identity_, {.trace_tokens_max = 1000});
  ASSERT_TRUE(RecordText(*other, parts, "p", ids, {.context_tokens_max = 100}).ok());
  EXPECT_THAT(parts.trace().text_begins, ElementsAre(0, 100));
  EXPECT_EQ(parts.profile().token_count(), 150u);
  const size_t same = size_t{100} * identity_.layer_count * identity_.ranks;
  EXPECT_TRUE(std::equal(parts.trace().routes.begin(),
                         parts.trace().routes.begin() + static_cast<ptrdiff_t>(same),
                         whole.trace().routes.begin()));
  // A text of one token has no known next token.
  RouteRecorder one(identity_, {});
  ASSERT_TRUE(RecordText(*other, one, "p", std::span(ids).first(1), {}).ok());
  ASSERT_TRUE(RecordText(*other, one, "p", {}, {}).ok());
  EXPECT_EQ(one.profile().token_count(), 1u);
  EXPECT_TRUE(one.profile().Validate().ok());
}

}  // namespace
}  // namespace hearth
