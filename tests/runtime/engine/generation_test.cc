// Generation end to end on the trained model: drafting never changes the output, stops end it
// exactly, sampling is reproducible.
#include "runtime/engine/generation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

class GenerationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    pack_ =
        std::make_unique<TemporaryPack>(HEARTH_SOURCE_DIR "/profiles/flashlet", DenseChoice::kQ8);
    runner_ = std::make_unique<LoadedRunner>(pack_->dir(), RunnerSetup{});
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

  struct Result {
    std::vector<TokenId> tokens;
    std::string text;
    FinishReason finish = FinishReason::kNone;
    GenerationStats stats;
  };
  static Result Run(ModelRunner& runner, const GenerationRequest& request) {
    SteadyClock clock;
    Result result;
    auto generation = Generation::Create(runner, *tokenizer_, clock, request);
    EXPECT_TRUE(generation.ok()) << generation.status();
    if (!generation.ok()) return result;
    absl::Status status = (*generation)->ReadPrompt(nullptr);
    result.text = (*generation)->TakeText();
    while (status.ok() && !(*generation)->finished()) {
      status = (*generation)->Step();
      result.text += (*generation)->TakeText();
    }
    EXPECT_TRUE(status.ok()) << status;
    result.tokens.assign((*generation)->output().begin(), (*generation)->output().end());
    result.finish = (*generation)->finish();
    result.stats = (*generation)->stats();
    return result;
  }
  static std::vector<TokenId> Prompt(const std::string& text) {
    return tokenizer_->Encode(text, SpecialTokens::kParse);
  }

  static std::unique_ptr<TemporaryPack> pack_;
  static std::unique_ptr<LoadedRunner> runner_;
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<TemporaryPack> GenerationTest::pack_;
std::unique_ptr<LoadedRunner> GenerationTest::runner_;
std::unique_ptr<Tokenizer> GenerationTest::tokenizer_;

constexpr const char* kCode = "def read_config(path):\n    \"\"\"Read the configuration.\"\"\"\n";
constexpr const char* kChat =
    "<|im_start|>user\nWrite a Python function named `is_empty`. Return True if the queue is "
    "empty.<|im_end|>\n<|im_start|>assistant\n";

TEST_F(GenerationTest, DraftsNeverChangeTheOutputOrItsLogits) {
  for (const Arithmetic arithmetic : {Arithmetic::kFast, Arithmetic::kReference}) {
    LoadedRunner runner(pack_->dir(), {.options = {.arithmetic = arithmetic}});
    for (const char* text : {kCode, kChat}) {
      GenerationRequest request{
          .prompt = Prompt(text), .max_tokens = 80, .ignore_stop_tokens = true};
      const Result plain = Run(*runner, request);
      ASSERT_EQ(plain.tokens.size(), 80u);
      for (request.drafts_max = 1; request.drafts_max <= kDraftsMax; ++request.drafts_max) {
        const Result drafted = Run(*runner, request);
        EXPECT_EQ(drafted.tokens, plain.tokens) << request.drafts_max << " drafts";
        EXPECT_EQ(drafted.text, plain.text);
        EXPECT_EQ(drafted.stats.logits_xxh3, plain.stats.logits_xxh3)
            << request.drafts_max << " drafts";
        EXPECT_LT(drafted.stats.windows, plain.stats.windows);
      }
    }
  }
}

// A prompt of several chunks, so that the MTP layer reads pairs across their borders.
TEST_F(GenerationTest, DraftsNeverChangeTheOutputAfterALongPrompt) {
  LoadedRunner runner(pack_->dir(), {.options = {.limits = {.prompt_rows_max = 32}}});
  const GoldenFile golden(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
  const std::vector<int32_t> ids = golden.Get<int32_t>("code.ids");
  GenerationRequest request{
      .prompt = {ids.begin(), ids.begin() + 333}, .max_tokens = 60, .ignore_stop_tokens = true};
  const Result plain = Run(*runner, request);
  for (const uint32_t drafts : {1u, 3u, 8u}) {
    request.drafts_max = drafts;
    const Result drafted = Run(*runner, request);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.stats.logits_xxh3, plain.stats.logits_xxh3);
    // The head was trained on this kind of text: most first drafts are right.
    EXPECT_GE(drafted.stats.accepted[0] * 2, drafted.stats.drafted[0]);
  }
}

TEST_F(GenerationTest, SampledOutputIsTheSameForEveryWindowLength) {
  GenerationRequest request{.prompt = Prompt(kChat), .max_tokens = 60};
  request.sampling = {.temperature = 0.8f,
                      .top_k = 40,
                      .top_p = 0.95f,
                      .repetition_penalty = 1.1f,
                      .presence_penalty = 0.5f,
                      .seed = 11};
  const Result plain = Run(**runner_, request);
  for (const uint32_t drafts : {1u, 4u, 8u}) {
    request.drafts_max = drafts;
    const Result drafted = Run(**runner_, request);
    EXPECT_EQ(drafted.tokens, plain.tokens) << request.drafts_max;
    EXPECT_EQ(drafted.finish, plain.finish);
  }
  request.sampling.seed = 12;
  EXPECT_NE(Run(**runner_, request).tokens, plain.tokens);
}

// Whatever token ends the output, at every place within a window: nothing after it is emitted, and
// drafting agrees with plain decoding about all of it.
TEST_F(GenerationTest, TokenLimitEndsTheOutputExactly) {
  for (uint32_t limit = 1; limit <= 12; ++limit) {
    GenerationRequest request{
        .prompt = Prompt(kCode), .max_tokens = limit, .ignore_stop_tokens = true};
    const Result plain = Run(**runner_, request);
    request.drafts_max = 4;
    const Result drafted = Run(**runner_, request);
    EXPECT_EQ(plain.tokens.size(), limit);
    EXPECT_EQ(plain.finish, FinishReason::kLength);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.finish, plain.finish);
  }
}

TEST_F(GenerationTest, StopTokenEndsTheOutputAndStaysOutOfTheText) {
  for (const uint32_t drafts : {0u, 1u, 2u, 3u, 5u, 8u}) {
    GenerationRequest request{.prompt = Prompt(kChat), .max_tokens = 400, .drafts_max = drafts};
    const Result result = Run(**runner_, request);
    ASSERT_EQ(result.finish, FinishReason::kStop) << "this prompt is known to end by itself";
    EXPECT_EQ(result.tokens.back(), 2) << "<|im_end|>";
    EXPECT_EQ(std::count(result.tokens.begin(), result.tokens.end(), 2), 1);
    EXPECT_EQ(result.text.find("<|im_end|>"), std::string::npos);
  }
}

TEST_F(GenerationTest, StopStringCutsTheTextJustBeforeIt) {
  GenerationRequest request{.prompt = Prompt(kCode), .max_tokens = 80, .ignore_stop_tokens = true};
  const Result whole = Run(**runner_, request);
  ASSERT_GT(whole.text.size(), 60u);
  const std::string stop = whole.text.substr(41, 7);  // spans tokens
  const std::string want = whole.text.substr(0, whole.text.find(stop));
  request.stop_strings = {stop};
  for (const uint32_t drafts : {0u, 1u, 4u, 8u}) {
    request.drafts_max = drafts;
    const Result cut = Run(**runner_, request);
    EXPECT_EQ(cut.text, want);
    EXPECT_EQ(cut.finish, FinishReason::kStop);
    EXPECT_LT(cut.tokens.size(), whole.tokens.size());
  }
}

TEST_F(GenerationTest, ContextEndsTheOutput) {
  GenerationRequest request{.prompt = Prompt(kCode),
                            .max_tokens = 400,
                            .ignore_stop_tokens = true,
                            .context_tokens_max = 48};
  const auto room = static_cast<uint32_t>(48 - request.prompt.size());
  for (const uint32_t drafts : {0u, 3u, 8u}) {
    request.drafts_max = drafts;
    const Result result = Run(**runner_, request);
    EXPECT_EQ(result.tokens.size(), room);
    EXPECT_EQ(result.finish, FinishReason::kLength);
  }
}

TEST_F(GenerationTest, RefusesWhatCannotRun) {
  SteadyClock clock;
  const auto refuse = [&](const GenerationRequest& request) {
    return Generation::Create(**runner_, *tokenizer_, clock, request).status();
  };
  EXPECT_EQ(refuse({}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse({.prompt = std::vector<TokenId>(8192, 5)}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refuse({.prompt = {5}, .drafts_max = 9}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse({.prompt = {5}, .sampling = {.temperature = -1}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse({.prompt = {-1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse({.prompt = {8192}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse({.prompt = {5}, .stop_strings = {""}}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
