// The prefix cache under generations, on the trained model: with it every answer has the tokens and
// the logits that it has without, whatever was reused, evicted or read back from disk.
#include "runtime/engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/cpu/cpu_imager.h"
#include "runtime/engine/generation.h"
#include "runtime/engine/prefix_binding.h"
#include "runtime/engine/prompt_cuts.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

constexpr uint64_t kPlenty = 1 << 30;

struct Answer {
  std::vector<TokenId> tokens;
  uint64_t logits_xxh3 = 0;
  uint32_t reused_tokens = 0;
  uint64_t prompt_rows = 0;  // that the experts of a layer served
};

class PrefixReuseTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    pack_ =
        std::make_unique<TemporaryPack>(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kQ8);
    runner_ = std::make_unique<LoadedRunner>(
        pack_->dir(), RunnerSetup{.options = {.limits = {.prompt_rows_max = 64}}});
    absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(
        ReadFixtureFile(HEARTH_SOURCE_DIR "/profiles/flashlet/tokenizer.json"), "tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = std::make_unique<Tokenizer>(*std::move(tokenizer));
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    runner_.reset();
    pack_.reset();
  }

  Answer Ask(PrefixCache* cache, const std::vector<TokenId>& prompt, uint32_t drafts,
             const std::string& salt = "") {
    GenerationRequest request{
        .prompt = prompt, .max_tokens = 24, .drafts_max = drafts, .ignore_stop_tokens = true};
    request.cache_salt = salt;
    request.context_tokens_max = 1024;
    auto generation =
        Generation::Create(**runner_, *tokenizer_, clock_, request, {.prefixes = cache});
    EXPECT_TRUE(generation.ok()) << generation.status();
    if (!generation.ok()) return {};
    absl::Status status = (*generation)->ReadPrompt(nullptr);
    while (status.ok() && !(*generation)->finished()) status = (*generation)->Step();
    EXPECT_TRUE(status.ok()) << status;
    const GenerationStats stats = (*generation)->stats();
    return {.tokens = {(*generation)->output().begin(), (*generation)->output().end()},
            .logits_xxh3 = stats.logits_xxh3,
            .reused_tokens = stats.reused_tokens};
  }
  // Asks with the cache and without; what was reused.
  uint32_t Compare(PrefixCache& cache, const std::vector<TokenId>& prompt, uint32_t drafts,
                   const std::string& salt = "") {
    const Answer with = Ask(&cache, prompt, drafts, salt);
    const Answer without = Ask(nullptr, prompt, drafts);
    EXPECT_EQ(with.tokens, without.tokens);
    EXPECT_EQ(with.logits_xxh3, without.logits_xxh3);
    EXPECT_EQ(without.reused_tokens, 0u);
    return with.reused_tokens;
  }
  // What was said, what is answered, and what is asked next.
  std::vector<TokenId> Next(std::vector<TokenId> prompt, const std::string& question) {
    const Answer answer = Ask(nullptr, prompt, 0);
    prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
    const std::vector<TokenId> more = Encode("<|im_end|>\n" + Turn(question));
    prompt.insert(prompt.end(), more.begin(), more.end());
    return prompt;
  }
  static std::string Turn(const std::string& question) {
    return "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n";
  }
  static std::vector<TokenId> Encode(const std::string& text) {
    return tokenizer_->Encode(text, SpecialTokens::kParse);
  }
  static std::vector<TokenId> Start(const std::string& topic) {
    const std::string system =
        "<|im_start|>system\nYou answer questions about code, in short sentences and with "
        "examples. "
        "Functions have names, arguments and results; a class has members and methods.<|im_end|>\n";
    return Encode(system + Turn("Write a Python function that reads " + topic +
                                ", checks every line of it and returns a list of its fields."));
  }

  std::span<const uint32_t> CutsOf(const std::vector<TokenId>& prompt) {
    return cuts_ = PromptCuts(prompt, PromptCutRuleOf((*runner_)->options().limits, *tokenizer_));
  }

  SteadyClock clock_;
  std::vector<uint32_t> cuts_;
  static std::unique_ptr<TemporaryPack> pack_;
  static std::unique_ptr<LoadedRunner> runner_;
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<TemporaryPack> PrefixReuseTest::pack_;
std::unique_ptr<LoadedRunner> PrefixReuseTest::runner_;
std::unique_ptr<Tokenizer> PrefixReuseTest::tokenizer_;

TEST_F(PrefixReuseTest, ConversationOfSeveralTurns) {
  for (const uint32_t drafts : {0u, 4u}) {
    PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty, .spacing_tokens = 64});
    std::vector<TokenId> prompt = Start("a table");
    EXPECT_EQ(Compare(cache, prompt, drafts), 0u);
    for (int turn = 0; turn < 4; ++turn) {
      const size_t before = prompt.size();
      prompt = Next(prompt, "And what does it do when a line is empty, or longer than the others?");
      const uint32_t reused = Compare(cache, prompt, drafts);
      EXPECT_GT(reused + 72, before) << "all but the last turn's rest, turn " << turn;
      EXPECT_LT(reused, prompt.size());
    }
    EXPECT_EQ(cache.stats().hits, 4u);
    EXPECT_EQ(cache.stats().evictions, 0u);
  }
}

// The same on a card, in both formats of keys and values.
TEST_F(PrefixReuseTest, ConversationOfSeveralTurnsOnACard) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (!list.ok()) GTEST_SKIP() << list.status();
  if (list->gpus.empty()) GTEST_SKIP() << list->reason;
  std::unique_ptr<LoadedRunner> on_host = std::move(runner_);
  for (const KvFormat kv_format : {KvFormat::kBf16, KvFormat::kInt8}) {
    RunnerOptions options{.gpu = list->gpus[0], .kv_format = kv_format};
    options.limits.prompt_rows_max = 64;
    options.planned_context_tokens = 1024;
    options.planned_sequences = 3;
    runner_ = std::make_unique<LoadedRunner>(pack_->dir(), RunnerSetup{.options = options});
    PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty, .spacing_tokens = 64});
    std::vector<TokenId> prompt = Start("a table");
    for (int turn = 0; turn < 3; ++turn) {
      EXPECT_EQ(Compare(cache, prompt, turn == 1 ? 0 : 4) > 0, turn > 0);
      prompt = Next(prompt, "And what does it do when a line is empty?");
    }
    EXPECT_EQ(cache.stats().hits, 2u);
    runner_.reset();
  }
  runner_ = std::move(on_host);
}

TEST_F(PrefixReuseTest, TwoConversationsInTurnUnderEveryBudget) {
  const PrefixImageCost cost = PrefixImageCostOf((*runner_)->imager(), true);
  std::vector<uint64_t> reused_by_budget;
  for (const uint64_t images : {0, 1, 2, 8}) {
    PrefixCache cache(
        (*runner_)->imager(),
        {.ram_budget_bytes = images * (cost.fixed_bytes + 200 * cost.bytes_per_token + 20000),
         .spacing_tokens = 64});
    std::vector<TokenId> one = Start("a table"), two = Start("a network socket");
    uint64_t reused = 0;
    for (int turn = 0; turn < 3; ++turn) {
      reused += Compare(cache, one, 3);
      reused += Compare(cache, two, 3);
      one = Next(one, "Why?");
      two = Next(two, "Show me how to call it.");
      EXPECT_LE(cache.stats().bytes, cache.stats().budget_bytes);
    }
    reused_by_budget.push_back(reused);
  }
  EXPECT_EQ(reused_by_budget.front(), 0u);
  EXPECT_GT(reused_by_budget.back(), 250u);
  EXPECT_GT(reused_by_budget.back(), reused_by_budget[1]);
  std::printf("tokens reused with room for 0, 1, 2 and 8 images: %s\n",
              testing::PrintToString(reused_by_budget).c_str());
}

TEST_F(PrefixReuseTest, PromptThatIsThePrefixOfAnother) {
  PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty, .spacing_tokens = 1});
  const GoldenFile golden(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
  const std::vector<int32_t> ids = golden.Get<int32_t>("code.ids");
  // Longer, shorter, at borders, one beside them, and again.
  for (const size_t count :
       {200u, 100u, 300u, 64u, 65u, 63u, 128u, 129u, 1u, 2u, 192u, 200u, 300u}) {
    const std::vector<TokenId> prompt(ids.begin(), ids.begin() + static_cast<long>(count));
    const uint32_t reused = Compare(cache, prompt, count % 2 == 0 ? 2 : 0);
    EXPECT_LT(reused, count);
  }
  const std::vector<TokenId> last(ids.begin(), ids.begin() + 300);
  EXPECT_EQ(Compare(cache, last, 4), 256u);
}

TEST_F(PrefixReuseTest, DraftingAndPlainRequestsShareWhatTheyCan) {
  PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty, .spacing_tokens = 64});
  std::vector<TokenId> prompt = Start("a table");
  std::vector<uint32_t> reused;
  for (const uint32_t drafts : {0u, 5u, 0u, 8u, 1u}) {
    reused.push_back(Compare(cache, prompt, drafts));
    prompt = Next(prompt, "Go on.");
  }
  EXPECT_EQ(reused[1], 0u) << "the first left nothing for the MTP layer";
  EXPECT_GT(reused[2], 0u);
  EXPECT_GT(reused[4], 0u);
}

TEST_F(PrefixReuseTest, PlansSayWhatImagesTake) {
  const ModelGeometry& g = (*runner_)->geometry();
  for (const bool drafts : {false, true}) {
    const PrefixImageCost plan = PlanPrefixImage(g, CpuImager::PositionBytes(g.attention), drafts);
    const PrefixImageCost loaded = PrefixImageCostOf((*runner_)->imager(), drafts);
    EXPECT_EQ(plan.fixed_bytes, loaded.fixed_bytes);
    EXPECT_EQ(plan.bytes_per_token, loaded.bytes_per_token);
    PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty});
    const std::vector<TokenId> prompt = Start("a table");
    Ask(&cache, prompt, drafts ? 2 : 0);
    const uint64_t tokens = cache.Find({.tokens = prompt, .cuts = CutsOf(prompt)})->token_count();
    const uint64_t planned_bytes = plan.fixed_bytes + tokens * plan.bytes_per_token;
    EXPECT_GE(cache.stats().bytes, planned_bytes - tokens);
    EXPECT_LE(cache.stats().bytes, planned_bytes + 4096 + tokens * 16 + 1024) << "a page, lists";
  }
}

TEST_F(PrefixReuseTest, SaltsKeepRequestsApart) {
  PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty, .spacing_tokens = 64});
  const std::vector<TokenId> prompt = Start("a table");
  EXPECT_EQ(Compare(cache, prompt, 2, "alice"), 0u);
  EXPECT_EQ(Compare(cache, prompt, 2, "bob"), 0u);
  EXPECT_GT(Compare(cache, prompt, 2, "alice"), 0u);
}

TEST_F(PrefixReuseTest, ConversationGoesOnAfterARestart) {
  const FixtureDir dir;
  const RunnerOptions& options = (*runner_)->options();
  absl::StatusOr<std::string> program = HashProgram();
  ASSERT_TRUE(program.ok()) << program.status();
  const auto binding = [&](std::string_view hash) {
    return HashPrefixBinding(PrefixBindingText((*runner_)->pack().manifest, options, "avx2", hash));
  };
  std::vector<TokenId> prompt = Start("a table");
  for (int life = 0; life < 3; ++life) {
    auto store = PrefixStore::Open(
        {.dir = dir.File("images"),
         .budget_bytes = kPlenty,
         .binding = binding(*program),
         .log = [](std::string_view text) { ADD_FAILURE() << std::string(text); }});
    ASSERT_TRUE(store.ok()) << store.status();
    PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty, .disk_gain_tokens = 1},
                      store->get());
    const uint32_t reused = Compare(cache, prompt, 3);
    EXPECT_EQ(reused > 0, life > 0);
    EXPECT_EQ(cache.stats().disk_hits, life > 0 ? 1u : 0u);
    prompt = Next(prompt, "And then?");
    EXPECT_GE(Compare(cache, prompt, 3), reused);
    prompt = Next(prompt, "Once more, please.");
  }
  auto store = PrefixStore::Open(
      {.dir = dir.File("images"), .budget_bytes = kPlenty, .binding = binding("another program")});
  ASSERT_TRUE(store.ok()) << store.status();
  PrefixCache cache((*runner_)->imager(), {.ram_budget_bytes = kPlenty}, store->get());
  EXPECT_EQ(Compare(cache, prompt, 3), 0u) << "its kernels may compute other bits";
}

TEST(PrefixBinding, ChangesWithEverythingThatBitsDependOn) {
  const Manifest manifest;
  std::vector<std::string> texts;
  const auto add = [&](const RunnerOptions& options, std::string_view program) {
    texts.push_back(PrefixBindingText(manifest, options, "scalar", program));
  };
  add({}, "a");
  add({}, "b");
  add({.arithmetic = Arithmetic::kReference}, "a");
  add({.limits = {.prompt_rows_max = 512}}, "a");
  RunnerOptions on_card;
  on_card.gpu.emplace();
  on_card.gpu->name = "card";
  on_card.gpu->sm = 90;
  add(on_card, "a");
  on_card.kv_format = KvFormat::kInt8;
  add(on_card, "a");
  on_card.gpu->sm = 120;
  add(on_card, "a");
  texts.push_back(PrefixBindingText({.source_xxh3_128 = "other"}, {}, "scalar", "a"));
  texts.push_back(PrefixBindingText(manifest, {}, "avx2", "a"));
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end());
}

}  // namespace
}  // namespace hearth
