// The trained model in reference arithmetic against golden values of the reference implementation:
// logits, routes, losses, the greedy continuation and the MTP head. For the checkpoint that ships
// with the project and for its BF16 original where that is at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/generation.h"
#include "runtime/engine/scorer.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

constexpr const char* kPrompts[] = {"code", "prose", "chat", "zh"};
constexpr const char* kDomains[] = {"python", "cpp", "chat", "en", "de",
                                    "fr",     "zh",  "ja",   "ru", "es"};

struct Source {
  const char* name;
  std::string checkpoint_dir;
  std::string golden_path;
};

Source ShippedSource() {
  return {"nvfp4", HEARTH_SOURCE_DIR "/profiles/flashlet",
          HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors"};
}
Source Bf16Source() {
  return {"bf16", HEARTH_SOURCE_DIR "/../shared/flashlet/bf16",
          HEARTH_SOURCE_DIR "/../shared/flashlet/golden/golden-bf16.safetensors"};
}

// Routes of every (layer, token, rank) of one sequence, and each token's margin: the smallest ratio
// by which a chosen score beats the best one that was not, over the layers so far.
class RouteRecorder final : public PassObserver {
 public:
  explicit RouteRecorder(uint32_t layer_count) : routes_(layer_count) {}
  void OnRoutes(LayerId layer, const Routes& routes) override {
    if (layer.value >= routes_.size()) return;
    routes_[layer.value].insert(routes_[layer.value].end(), routes.expert.begin(),
                                routes.expert.end());
    ranks_ = routes.ranks;
  }
  void OnResidual(LayerId layer, std::span<const float> residual) override {
    if (layer.value >= routes_.size()) return;
    last_residual_.assign(residual.end() - 1024, residual.end());
    residuals_.resize(routes_.size());
    residuals_[layer.value] = last_residual_;
  }
  const std::vector<uint32_t>& layer(uint32_t l) const { return routes_[l]; }
  const std::vector<float>& last_residual(uint32_t l) const { return residuals_[l]; }
  uint32_t ranks() const { return ranks_; }

 private:
  std::vector<std::vector<uint32_t>> routes_;
  std::vector<std::vector<float>> residuals_;
  std::vector<float> last_residual_;
  uint32_t ranks_ = 0;
};

class FlashletGolden : public testing::TestWithParam<bool> {  // true: the shipped checkpoint
 protected:
  void SetUp() override {
    source_ = GetParam() ? ShippedSource() : Bf16Source();
    if (!std::filesystem::exists(source_.checkpoint_dir) ||
        !std::filesystem::exists(source_.golden_path)) {
      GTEST_SKIP() << "the BF16 checkpoint is not here: " << source_.checkpoint_dir;
    }
    golden_ = std::make_unique<GoldenFile>(source_.golden_path);
    pack_ = std::make_unique<TemporaryPack>(source_.checkpoint_dir, DenseChoice::kBf16);
    runner_ = std::make_unique<LoadedRunner>(
        pack_->dir(), RunnerSetup{.options = {.arithmetic = Arithmetic::kReference,
                                              .limits = {.prompt_rows_max = 1024}}});
  }
  ModelRunner& runner() { return **runner_; }
  std::vector<TokenId> Ids(const std::string& name) {
    const std::vector<int32_t> ids = golden_->Get<int32_t>(name + ".ids");
    return {ids.begin(), ids.end()};
  }

  Source source_;
  std::unique_ptr<GoldenFile> golden_;
  std::unique_ptr<TemporaryPack> pack_;
  std::unique_ptr<LoadedRunner> runner_;
};

// The first (layer, token) at or before `position` whose routes differ: a flip there moves
// everything after.
std::string FirstFlip(const RouteRecorder& ours, const std::vector<int16_t>& golden,
                      uint32_t tokens, uint32_t position) {
  const uint32_t ranks = ours.ranks();
  for (uint32_t layer = 0; layer * size_t{tokens} * ranks < golden.size(); ++layer) {
    for (uint32_t t = 0; t <= position; ++t) {
      for (uint32_t r = 0; r < ranks; ++r) {
        const size_t i = size_t{t} * ranks + r;
        const auto want = static_cast<uint32_t>(golden[size_t{layer} * tokens * ranks + i]);
        if (ours.layer(layer)[i] != want) {
          return "route of layer " + std::to_string(layer) + ", token " + std::to_string(t) +
                 ", rank " + std::to_string(r) + ": " + std::to_string(ours.layer(layer)[i]) +
                 " instead of " + std::to_string(want);
        }
      }
    }
  }
  return "no route differs";
}

TEST_P(FlashletGolden, LogitsAndRoutesEqualTheReference) {
  uint64_t positions = 0, positions_off = 0, routes = 0, routes_off = 0;
  for (const std::string prompt : kPrompts) {
    const std::vector<TokenId> ids = Ids(prompt);
    const std::vector<int32_t> pos = golden_->Get<int32_t>(prompt + ".pos");
    const std::vector<float> want = golden_->Get<float>(prompt + ".logits");
    const std::vector<int16_t> want_routes = golden_->Get<int16_t>(prompt + ".route");
    const uint32_t vocab = runner().geometry().vocab_count;
    RouteRecorder recorder(runner().geometry().layer_count());
    runner().set_observer(&recorder);
    std::vector<std::vector<float>> rows(ids.size());
    const auto score = ScoreTokens(runner(), ids, {.on_logits = [&](uint32_t p, auto row) {
                                     rows[p].assign(row.begin(), row.end());
                                   }});
    runner().set_observer(nullptr);
    ASSERT_TRUE(score.ok()) << score.status();
    for (size_t i = 0; i < pos.size(); ++i) {
      const std::span<const float> golden_row = std::span(want).subspan(i * vocab, vocab);
      float largest = 0, worst = 0;
      for (uint32_t v = 0; v < vocab; ++v) {
        largest = std::max(largest, std::fabs(golden_row[v]));
        worst = std::max(worst, std::fabs(golden_row[v] - rows[pos[i]][v]));
      }
      ++positions;
      if (worst <= 2e-3f * largest) continue;
      ++positions_off;
      std::printf(
          "%s %s position %d: off by %.2e of the row's largest; %s\n", source_.name, prompt.c_str(),
          pos[i], worst / largest,
          FirstFlip(recorder, want_routes, static_cast<uint32_t>(ids.size()), pos[i]).c_str());
    }
    for (uint32_t layer = 0; layer < runner().geometry().layer_count(); ++layer) {
      const std::vector<uint32_t>& ours = recorder.layer(layer);
      for (size_t i = 0; i < ours.size(); ++i) {
        ++routes;
        if (ours[i] != static_cast<uint32_t>(want_routes[layer * ours.size() + i])) ++routes_off;
      }
    }
    const std::vector<float> want_last = golden_->Get<float>(prompt + ".layer_last");
    for (uint32_t layer = 0; layer < runner().geometry().layer_count(); ++layer) {
      for (size_t j = 0; j < 1024; ++j) {
        ASSERT_NEAR(recorder.last_residual(layer)[j], want_last[layer * 1024 + j], 0.05f)
            << prompt << " layer " << layer << " value " << j;
      }
    }
  }
  std::printf("%s: %zu of %zu positions off, %zu of %zu routes differ\n", source_.name,
              size_t{positions_off}, size_t{positions}, size_t{routes_off}, size_t{routes});
  EXPECT_LE(positions_off * 100, positions);
  EXPECT_LE(routes_off * 1000, routes);
}

TEST_P(FlashletGolden, MeanLossOfEveryDomainEqualsTheReference) {
  for (const std::string domain : kDomains) {
    const std::vector<TokenId> ids = Ids("eval." + domain);
    const std::vector<float> want = golden_->Get<float>("eval." + domain + ".nll");
    double want_mean = 0;
    for (const float nll : want) want_mean += nll;
    want_mean /= static_cast<double>(want.size());
    const absl::StatusOr<Score> score = ScoreTokens(runner(), ids, {});
    ASSERT_TRUE(score.ok()) << score.status();
    EXPECT_NEAR(score->mean_nll, want_mean, 1e-4) << source_.name << " " << domain;
  }
}

// Equal up to the first position whose two best logits are nearly tied.
TEST_P(FlashletGolden, GreedyContinuationEqualsTheReference) {
  const absl::StatusOr<Tokenizer> tokenizer =
      Tokenizer::FromJson(ReadFixtureFile(source_.checkpoint_dir + "/tokenizer.json"), "tokenizer");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  SteadyClock clock;
  for (const std::string prompt : kPrompts) {
    std::vector<TokenId> ids = Ids(prompt);
    ids.resize(64);
    const std::vector<int32_t> want = golden_->Get<int32_t>(prompt + ".greedy");
    auto generation = Generation::Create(runner(), *tokenizer, clock,
                                         {.prompt = ids,
                                          .max_tokens = static_cast<uint32_t>(want.size()),
                                          .ignore_stop_tokens = true});
    ASSERT_TRUE(generation.ok()) << generation.status();
    ASSERT_TRUE((*generation)->ReadPrompt(nullptr).ok());
    while (!(*generation)->finished()) ASSERT_TRUE((*generation)->Step().ok());
    const std::span<const TokenId> got = (*generation)->output();
    const auto differ = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
    if (differ.first == got.end()) continue;
    // Where they part, the two choices must be a near tie in our own logits.
    const auto at = static_cast<size_t>(differ.first - got.begin());
    std::vector<TokenId> all = ids;
    all.insert(all.end(), got.begin(), got.end());
    float margin = 0;
    const auto score = ScoreTokens(runner(), all, {.on_logits = [&](uint32_t p, auto row) {
                                     if (p + 1 == ids.size() + at) {
                                       margin = row[got[at]] - row[want[at]];
                                     }
                                   }});
    ASSERT_TRUE(score.ok());
    std::printf("%s %s: greedy output parts at token %zu, where two logits are %.4f apart\n",
                source_.name, prompt.c_str(), at, margin);
    EXPECT_LT(margin, 0.02f) << source_.name << " " << prompt << " token " << at;
  }
}

TEST_P(FlashletGolden, DraftsEqualTheReference) {
  uint64_t entries = 0, entries_off = 0;
  for (const std::string prompt : kPrompts) {
    const std::vector<TokenId> ids = Ids(prompt);
    const std::vector<int32_t> chain = golden_->Get<int32_t>(prompt + ".mtp_chain");
    const std::vector<float> want = golden_->Get<float>(prompt + ".mtp_logits");
    const uint32_t vocab = runner().geometry().vocab_count;
    const auto sequence = *runner().CreateSequence(static_cast<uint32_t>(ids.size()) + 8);
    const Segment segment{.sequence = sequence.get(), .tokens = ids};
    ASSERT_TRUE(runner().RunTrunk({&segment, 1}, Phase::kPrompt).ok());
    ASSERT_TRUE(runner().Commit(*sequence, static_cast<uint32_t>(ids.size())).ok());
    std::vector<float> logits(vocab);
    const auto best = [&] {
      return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    };
    for (size_t i = 0; i < chain.size() / 4; ++i) {
      const auto position = static_cast<uint32_t>(chain[4 * i]);
      const uint32_t first = sequence->draft_count();
      const uint32_t pairs = position + 1 - first;
      ASSERT_TRUE(runner()
                      .RunDraft(*sequence, std::span(ids).subspan(first + 1, pairs),
                                Backend::DraftSource::kTrunk)
                      .ok());
      ASSERT_TRUE(runner().Head(pairs - 1, 1, logits).ok());
      ASSERT_TRUE(runner().CommitDraft(*sequence).ok());
      float largest = 0, worst = 0;
      for (uint32_t v = 0; v < vocab; ++v) {
        largest = std::max(largest, std::fabs(want[i * vocab + v]));
        worst = std::max(worst, std::fabs(want[i * vocab + v] - logits[v]));
      }
      EXPECT_LE(worst, 2e-3f * largest)
          << source_.name << " " << prompt << " position " << position;
      TokenId draft = best();
      for (int step = 1; step <= 3; ++step) {
        ++entries;
        if (draft != chain[4 * i + step]) ++entries_off;
        if (step == 3) break;
        ASSERT_TRUE(runner().RunDraft(*sequence, {&draft, 1}, Backend::DraftSource::kChained).ok());
        ASSERT_TRUE(runner().Head(0, 1, logits).ok());
        draft = best();
      }
    }
  }
  std::printf("%s: %zu of %zu draft entries differ\n", source_.name, size_t{entries_off},
              size_t{entries});
  EXPECT_LE(entries_off * 20, entries);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, FlashletGolden, testing::Values(true, false),
                         [](const auto& source) { return source.param ? "Shipped" : "Bf16"; });

}  // namespace
}  // namespace hearth
