// A made-up model runs: activations stay finite over a long text, and its routers choose as trained
// ones do: the hottest 40% of the experts carry most of the traffic, a token shares experts with
// the one before it, more than with one far back, and nearly every expert is used at some time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "gtest/gtest.h"

#include "pack/synth/build_synthetic.h"
#include "runtime/base/prng.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

using Choice = std::vector<uint32_t>;

class RouteRecord final : public PassObserver {
 public:
  void OnRoutes(LayerId layer, const Routes& routes) override {
    if (layers.size() <= layer.value) layers.resize(layer.value + 1);
    for (uint32_t row = 0; row < routes.rows; ++row) {
      const auto ranks = routes.expert.subspan(row * routes.ranks, routes.ranks);
      layers[layer.value].emplace_back(ranks.begin(), ranks.end());
    }
  }
  void OnResidual(LayerId, std::span<const float> residual) override {
    for (const float value : residual) largest = std::max(largest, std::abs(value));
  }

  std::vector<std::vector<Choice>> layers;  // [layer][token]
  float largest = 0;
};

// Of one layer's traffic, what the hottest `share` of its experts carry.
double HotShare(const std::vector<Choice>& choices, uint32_t expert_count, double share) {
  std::vector<uint64_t> counts(expert_count);
  uint64_t total = 0;
  for (const Choice& choice : choices) {
    for (const uint32_t expert : choice) ++counts[expert];
    total += choice.size();
  }
  std::sort(counts.begin(), counts.end(), std::greater<>());
  uint64_t hot = 0;
  for (uint32_t i = 0; i < share * expert_count; ++i) hot += counts[i];
  return static_cast<double>(hot) / static_cast<double>(total);
}

// How much of a token's choice the token `lag` before it made too.
double Shared(const std::vector<Choice>& choices, size_t lag) {
  uint64_t both = 0;
  uint64_t total = 0;
  for (size_t t = lag; t < choices.size(); ++t) {
    for (const uint32_t expert : choices[t]) {
      const Choice& before = choices[t - lag];
      both += std::find(before.begin(), before.end(), expert) != before.end() ? 1 : 0;
    }
    total += choices[t].size();
  }
  return static_cast<double>(both) / static_cast<double>(total);
}

// Runs `token_count` tokens, each drawn from the logits of the one before it at temperature 1.
void Sample(ModelRunner& runner, uint32_t token_count) {
  const auto sequence = runner.CreateSequence(token_count);
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  std::vector<float> logits(runner.geometry().vocab_count);
  Prng prng(11);
  TokenId token = 40;
  for (uint32_t t = 0; t < token_count; ++t) {
    const Segment segment{.sequence = sequence->get(), .tokens = std::span(&token, 1)};
    ASSERT_TRUE(runner.RunTrunk(std::span(&segment, 1), Phase::kWindow).ok());
    ASSERT_TRUE(runner.Head(0, 1, logits).ok());
    ASSERT_TRUE(runner.Commit(**sequence, 1).ok());
    const float best = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const float logit : logits) total += std::exp(logit - best);
    ASSERT_TRUE(std::isfinite(total)) << t;
    double left = prng.Uniform() * total;
    token = 0;
    for (size_t i = 0; i < logits.size() && left > 0; ++i) {
      left -= std::exp(logits[i] - best);
      token = static_cast<TokenId>(i);
    }
  }
}

TEST(SyntheticRoutes, LookLikeThoseOfATrainedModel) {
  FixtureDir dir;
  const std::string out = dir.File("pack");
  const auto report = BuildSyntheticPack({.out = out,
                                          .shape = {.model = SyntheticModel::kSmall,
                                                    .expert_count = 512,
                                                    .hidden = 256,
                                                    .expert_width = 32},
                                          .worker_count = 2},
                                         nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  LoadedRunner runner(out, {});
  RouteRecord record;
  runner->set_observer(&record);
  Sample(*runner, 600);
  EXPECT_LT(record.largest, 200) << "activations do not run away";
  ASSERT_EQ(record.layers.size(), 4u);
  double hot = 0;
  for (const std::vector<Choice>& choices : record.layers) {
    ASSERT_EQ(choices.size(), 600u);
    hot += HotShare(choices, 512, 0.4) / 4;
    EXPECT_GT(HotShare(choices, 512, 0.4), 0.75);
    EXPECT_LT(HotShare(choices, 512, 0.4), 0.96);
    EXPECT_GT(Shared(choices, 1), 0.12);
    EXPECT_LT(Shared(choices, 1), 0.60);
    EXPECT_GT(Shared(choices, 1), Shared(choices, 16) + 0.03);
    EXPECT_LT(HotShare(choices, 512, 0.6), 0.9999) << "three fifths are not all";
    RecordProperty("lag1", std::to_string(Shared(choices, 1)));
  }
  EXPECT_GT(hot, 0.80);
  EXPECT_LT(hot, 0.93);
}

}  // namespace
}  // namespace hearth
