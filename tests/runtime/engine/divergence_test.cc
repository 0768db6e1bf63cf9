// runtime/engine/divergence.h, and what an observer of runtime/engine/model_runner.h is told of the
// experts.
#include "runtime/engine/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "pack/convert/expert_repack.h"
#include "runtime/engine/scorer.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

std::vector<TokenId> Text(uint32_t vocab_count) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < 40; ++i) tokens.push_back((i * i * 7 + 3) % vocab_count);
  return tokens;
}

TEST(CompareModels, AModelDoesNotDivergeFromItself) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  LoadedRunner model(pack.dir(), {});
  LoadedRunner reference(pack.dir(), {.options = {.limits = {.prompt_rows_max = 7}}});
  const std::vector<TokenId> tokens = Text(model->geometry().vocab_count);
  uint64_t done = 0;
  const auto d = CompareModels(*model, *reference, tokens, [&](uint64_t now) { done = now; });
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(done, tokens.size());
  EXPECT_EQ(d->position_count, tokens.size());
  EXPECT_EQ(d->kl_sum, 0);
  EXPECT_EQ(d->top_agreement(), 1);
  const auto score = ScoreTokens(*model, tokens, {});
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(d->scored_count, tokens.size() - 1);
  EXPECT_NEAR(d->nll_sum / static_cast<double>(d->scored_count), score->mean_nll, 1e-6);
  EXPECT_EQ(d->nll_sum, d->reference_nll_sum);
}

TEST(CompareModels, OtherArithmeticDivergesALittle) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  const TemporaryPack narrow(HashModel(), DenseChoice::kQ8);
  LoadedRunner model(narrow.dir(), {});
  LoadedRunner reference(pack.dir(), {.options = {.arithmetic = Arithmetic::kReference}});
  const std::vector<TokenId> tokens = Text(model->geometry().vocab_count);
  const auto d = CompareModels(*model, *reference, tokens, nullptr);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_GT(d->mean_kl(), 1e-9);
  EXPECT_LT(d->mean_kl(), 0.5);
  Divergence twice = *d;
  twice.Add(*d);
  EXPECT_EQ(twice.position_count, 2 * d->position_count);
  EXPECT_DOUBLE_EQ(twice.mean_kl(), d->mean_kl());
}

TEST(CompareModels, RefusesTextsThatAreTooShort) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  LoadedRunner model(pack.dir(), {});
  const std::vector<TokenId> tokens = {1};
  EXPECT_EQ(CompareModels(*model, *model, tokens, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Computes again, from the stored weights, what one expert of each layer made of one row.
class CheckingObserver final : public PassObserver {
 public:
  explicit CheckingObserver(const Pack& pack) : pack_(pack) {}
  void OnRoutes(LayerId, const Routes&) override {}
  void OnResidual(LayerId, std::span<const float>) override {}
  void OnExperts(LayerId layer, const ExpertActivity& activity) override {
    ++calls;
    const ExpertLayout& layout = pack_.experts.layout(layer);
    const PlannedExpert& planned = activity.plan.experts.back();
    std::vector<std::byte> blob(layout.blob_bytes());
    ASSERT_TRUE(pack_.experts.Read({layer, planned.expert}, blob).ok());
    SourceExpert weights;
    DecodeExpertValues(layout, blob, weights);
    const uint32_t entry = planned.entry_begin + planned.entry_count - 1;
    const float* x = activity.x.data() + size_t{activity.plan.entries[entry].row} * layout.hidden;
    for (uint32_t i = 0; i < layout.width; ++i) {
      double gate = 0, up = 0;
      for (uint32_t k = 0; k < layout.hidden; ++k) {
        gate += double{weights.gate.values[size_t{i} * layout.hidden + k]} * x[k];
        up += double{weights.up.values[size_t{i} * layout.hidden + k]} * x[k];
      }
      const double expected = gate / (1 + std::exp(-gate)) * up;
      EXPECT_NEAR(activity.hidden[size_t{entry} * layout.width + i], expected,
                  1e-4 * (1 + std::abs(expected)));
    }
  }
  uint32_t calls = 0;

 private:
  const Pack& pack_;
};

TEST(PassObserver, SeesWhatExpertsReadAndMade) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  LoadedRunner model(pack.dir(), {.options = {.arithmetic = Arithmetic::kReference}});
  CheckingObserver observer(model->pack());
  model->set_observer(&observer);
  ASSERT_TRUE(ScoreTokens(*model, Text(model->geometry().vocab_count), {}).ok());
  EXPECT_GE(observer.calls, model->geometry().layer_count());
}

}  // namespace
}  // namespace hearth
