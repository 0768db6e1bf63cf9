// Several generations in one window each get what they get alone: token for token and logit for
// logit, whatever else shares their windows, however many drafts they are given, and when another
// of them fails.
#include "runtime/engine/window_batch.h"

#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <xxhash.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/prng.h"
#include "runtime/engine/generation.h"
#include "runtime/engine/head_rows.h"
#include "runtime/engine/scorer.h"
#include "tests/support/allocation_count.h"
#include "tests/support/flashlet_fixture.h"

namespace hearth {
namespace {

struct Result {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  uint64_t logits_xxh3 = 0;
  std::vector<TokenLogprob> chosen;
  absl::Status status;
};

void ExpectSame(const Result& got, const Result& want) {
  EXPECT_EQ(got.status, want.status);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish, want.finish);
  EXPECT_EQ(got.logits_xxh3, want.logits_xxh3);
  EXPECT_EQ(got.chosen, want.chosen);
}

// Takes what a generation has to give so far.
void Take(Generation& generation, Result& result) {
  result.text += generation.TakeText();
  for (const TokenReport& report : generation.TakeReports()) result.chosen.push_back(report.chosen);
  result.tokens.assign(generation.output().begin(), generation.output().end());
  result.finish = generation.finish();
  result.logits_xxh3 = generation.stats().logits_xxh3;
}

// Allows everything up to its `length`-th token, then nothing: the choice there fails.
class DeadEnd final : public TokenConstraint {
 public:
  DeadEnd(uint32_t vocab_count, uint32_t length)
      : nothing_(vocab_count / 64 + 1), length_(length) {}
  std::span<const uint64_t> Allowed() override {
    return count_ < length_ ? std::span<const uint64_t>() : nothing_;
  }
  void Push(TokenId) override { ++count_; }
  void PopTo(uint32_t count) override { count_ = count; }

 private:
  std::vector<uint64_t> nothing_;
  uint32_t length_;
  uint32_t count_ = 0;
};

class WindowBatchTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = std::make_unique<Flashlet>(HEARTH_SOURCE_DIR);
    runner_ = std::make_unique<LoadedRunner>(
        model_->pack_dir(), RunnerSetup{.options = {.limits = {.prompt_rows_max = 64}}});
  }
  static void TearDownTestSuite() {
    runner_.reset();
    model_.reset();
  }

  // Of many kinds: short and long prompts, greedy and sampled, with all that changes a choice.
  static std::vector<GenerationRequest> Requests() {
    std::vector<GenerationRequest> all;
    const auto add = [&](std::vector<TokenId> prompt, SamplingParams sampling, uint32_t drafts) {
      all.push_back({.prompt = std::move(prompt),
                     .max_tokens = 30 + 7 * static_cast<uint32_t>(all.size()),
                     .drafts_max = drafts,
                     .sampling = std::move(sampling)});
    };
    add(model_->Tokens("def read_config(path):\n"), {}, 3);
    add(model_->Chat("Write a Python function named `is_empty`."), {}, 0);
    add(model_->Golden("prose", 150), {.temperature = 0.8f, .top_k = 40, .seed = 5}, 2);
    add(model_->Golden("code", 333), {.repetition_penalty = 1.3f, .min_tokens = 20}, 8);
    add(model_->Golden("zh", 70), {.temperature = 1, .top_p = 0.9f, .seed = 6}, 1);
    all[0].ignore_stop_tokens = true;
    all[2].wants_logprobs = true;
    all[2].top_logprobs = 2;
    all[4].stop_strings = {"\n\n", "of"};
    return all;
  }

  static std::unique_ptr<Generation> Make(ModelRunner& runner, WindowBatch* batch,
                                          const GenerationRequest& request) {
    auto generation =
        Generation::Create(runner, model_->tokenizer(), clock_, request, {.batch = batch});
    EXPECT_TRUE(generation.ok()) << generation.status();
    return *std::move(generation);
  }

  static Result Alone(ModelRunner& runner, const GenerationRequest& request) {
    Result result;
    const std::unique_ptr<Generation> generation = Make(runner, nullptr, request);
    result.status = generation->ReadPrompt(nullptr);
    while (result.status.ok() && !generation->finished()) {
      result.status = generation->Step();
    }
    Take(*generation, result);
    return result;
  }

  // Together, from the start of each: a pass over one prompt at most between windows, windows with
  // a random share of drafts for everyone who decodes.
  static std::vector<Result> Together(ModelRunner& runner,
                                      const std::vector<GenerationRequest>& requests,
                                      uint64_t seed) {
    WindowBatch batch(runner, clock_);
    Prng prng(seed);
    std::vector<std::unique_ptr<Generation>> generations;
    for (const GenerationRequest& r : requests) generations.push_back(Make(runner, &batch, r));
    std::vector<Result> results(requests.size());
    for (bool busy = true; busy;) {
      busy = false;
      std::vector<WindowShare> shares;
      std::vector<size_t> owners;
      bool read = false;
      for (size_t i = 0; i < generations.size(); ++i) {
        Generation& generation = *generations[i];
        if (generation.finished() || !results[i].status.ok()) continue;
        busy = true;
        if (!generation.prompt_read()) {
          if (!read) results[i].status = generation.ReadPromptChunk();
          read = true;
        } else if (prng.Below(4) != 0) {  // now and then someone sits a window out
          shares.push_back({.generation = &generation});
          owners.push_back(i);
        }
      }
      auto left = static_cast<uint32_t>(batch.rows_max() - shares.size());
      for (WindowShare& share : shares) {
        share.drafts_max = static_cast<uint32_t>(prng.Below(left + 1));
        left -= share.drafts_max;
      }
      if (!shares.empty()) batch.Run(shares);
      for (size_t i = 0; i < shares.size(); ++i) results[owners[i]].status = shares[i].status;
    }
    for (size_t i = 0; i < generations.size(); ++i) Take(*generations[i], results[i]);
    return results;
  }

  static std::unique_ptr<Flashlet> model_;
  static std::unique_ptr<LoadedRunner> runner_;
  static SteadyClock clock_;
};
std::unique_ptr<Flashlet> WindowBatchTest::model_;
std::unique_ptr<LoadedRunner> WindowBatchTest::runner_;
SteadyClock WindowBatchTest::clock_;

TEST_F(WindowBatchTest, EveryOneGetsWhatItGetsAlone) {
  const std::vector<GenerationRequest> requests = Requests();
  std::vector<Result> alone;
  for (const GenerationRequest& r : requests) alone.push_back(Alone(**runner_, r));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<Result> together = Together(**runner_, requests, seed);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i) + " seed " + std::to_string(seed));
      EXPECT_TRUE(together[i].status.ok());
      ExpectSame(together[i], alone[i]);
    }
  }
}

// Where choices look at the largest logits alone, some of them: the card tells no more than it
// must.
TEST_F(WindowBatchTest, ACardToo) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (!list.ok() || list->gpus.empty()) GTEST_SKIP() << "no CUDA card";
  LoadedRunner runner(model_->pack_dir(), {.options = {.gpu = list->gpus[0],
                                                       .limits = {.prompt_rows_max = 64},
                                                       .planned_context_tokens = 4096}});
  std::vector<GenerationRequest> requests = Requests();
  for (GenerationRequest& r : requests) r.context_tokens_max = 512;
  requests[0].hash_logits = requests[2].hash_logits = requests[4].hash_logits = false;
  requests[2].wants_logprobs = false;
  std::vector<Result> alone;
  for (const GenerationRequest& r : requests) alone.push_back(Alone(*runner, r));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<Result> together = Together(*runner, requests, seed);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i) + " seed " + std::to_string(seed));
      EXPECT_TRUE(together[i].status.ok()) << together[i].status;
      ExpectSame(together[i], alone[i]);
    }
  }
}

TEST_F(WindowBatchTest, OneWhoseChoiceFailsFailsAlone) {
  std::vector<GenerationRequest> requests = Requests();
  std::vector<Result> alone;
  for (const GenerationRequest& r : requests) alone.push_back(Alone(**runner_, r));
  for (const uint32_t length : {0u, 1u, 9u}) {
    for (GenerationRequest& r : requests) r.constraint = nullptr;
    const uint32_t vocab = (*runner_)->geometry().vocab_count;
    requests[3].constraint = std::make_shared<DeadEnd>(vocab, length);
    const std::vector<Result> together = Together(**runner_, requests, 7);
    EXPECT_EQ(together[3].status.code(), absl::StatusCode::kDataLoss) << together[3].status;
    EXPECT_EQ(together[3].tokens.size(), length);
    for (const size_t i : {0u, 1u, 2u, 4u}) ExpectSame(together[i], alone[i]);
  }
}

// Which experts passes ask for.
class Sightings final : public PassObserver {
 public:
  void OnRoutes(LayerId layer, const Routes& routes) override {
    for (const uint32_t expert : routes.expert) {
      seen_.insert({.layer = layer, .expert = ExpertId(expert)});
    }
  }
  void OnResidual(LayerId, std::span<const float>) override {}
  std::set<ExpertKey> Take() { return std::exchange(seen_, {}); }

 private:
  std::set<ExpertKey> seen_;
};

// An expert whose bytes in the file are damaged until the end.
class DamagedExpert {
 public:
  DamagedExpert(const std::string& pack_dir, ExpertKey key) {
    const absl::StatusOr<Pack> pack = Pack::Open(pack_dir);
    HEARTH_CHECK(pack.ok());
    path_ = pack_dir + "/experts.bin";
    at_ = static_cast<std::streamoff>(pack->experts.offset_bytes(key)) + 100;
    Flip();
  }
  ~DamagedExpert() { Flip(); }

 private:
  void Flip() {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at_);
    const int byte = file.get();
    file.seekp(at_);
    file.put(static_cast<char>(byte ^ 0x40));
    HEARTH_CHECK(file.good());
  }
  std::string path_;
  std::streamoff at_ = 0;
};

// The pass over both fails; one of the two does not need what made it fail.
TEST_F(WindowBatchTest, OneWhoseExpertCannotBeReadFailsAlone) {
  const RunnerSetup setup{
      .options = {.experts = {.ram = RamTier::kBudget, .ram_budget_bytes = 2 << 20}}};
  const GenerationRequest healthy{
      .prompt = model_->Tokens("def f(x):\n"), .max_tokens = 12, .ignore_stop_tokens = true};
  GenerationRequest struck = healthy;
  struck.prompt = model_->Golden("zh", 12);
  Result healthy_alone, struck_alone;
  std::set<ExpertKey> of_struck;  // those that only its output needs
  {
    LoadedRunner runner(model_->pack_dir(), setup);
    Sightings sightings;
    runner->set_observer(&sightings);
    healthy_alone = Alone(*runner, healthy);
    std::set<ExpertKey> others = sightings.Take();
    const auto generation = Make(*runner, nullptr, struck);
    ASSERT_TRUE(generation->ReadPrompt(nullptr).ok());
    others.merge(sightings.Take());
    while (!generation->finished()) ASSERT_TRUE(generation->Step().ok());
    of_struck = sightings.Take();
    std::erase_if(of_struck, [&](ExpertKey key) { return others.contains(key); });
    Take(*generation, struck_alone);
    runner->set_observer(nullptr);
  }
  ASSERT_FALSE(of_struck.empty());
  LoadedRunner runner(model_->pack_dir(), setup);
  WindowBatch batch(*runner, clock_);
  const auto a = Make(*runner, &batch, healthy), b = Make(*runner, &batch, struck);
  Result of_a, of_b;
  {
    const DamagedExpert damage(model_->pack_dir(), *of_struck.rbegin());
    ASSERT_TRUE(a->ReadPrompt(nullptr).ok());
    ASSERT_TRUE(b->ReadPrompt(nullptr).ok());
    while (!a->finished()) {
      std::vector<WindowShare> shares = {{.generation = a.get()}};
      if (of_b.status.ok()) shares.push_back({.generation = b.get()});
      batch.Run(shares);
      ASSERT_TRUE(shares[0].status.ok()) << shares[0].status;
      if (shares.size() == 2) of_b.status = shares[1].status;
    }
  }
  EXPECT_EQ(of_b.status.code(), absl::StatusCode::kDataLoss) << of_b.status;
  Take(*a, of_a);
  ExpectSame(of_a, healthy_alone);
  ExpectSame(Alone(*runner, struck), struck_alone);  // what is whole again is read again
}

TEST_F(WindowBatchTest, OneThatStopsDraftingGoesOnWithoutDrafts) {
  GenerationRequest request{.prompt = model_->Tokens("def read_config(path):\n"),
                            .max_tokens = 30,
                            .drafts_max = 3,
                            .ignore_stop_tokens = true};
  const Result alone = Alone(**runner_, request);
  WindowBatch batch(**runner_, clock_);
  for (const bool keeps : {true, false}) {
    const std::unique_ptr<Generation> generation = Make(**runner_, &batch, request);
    ASSERT_TRUE(generation->ReadPrompt(nullptr).ok());
    Result result;
    for (uint32_t window = 0; !generation->finished(); ++window) {
      WindowShare share{.generation = generation.get(),
                        .drafts_max = window < 3 ? 0u : 3u,
                        .keeps_drafting = keeps || window != 1};
      batch.Run({&share, 1});
      ASSERT_TRUE(share.status.ok()) << share.status;
    }
    Take(*generation, result);
    ExpectSame(result, alone);
    EXPECT_EQ(generation->stats().drafted[0] > 0, keeps);
  }
}

TEST_F(WindowBatchTest, APromptIsReadCutByCut) {
  const GenerationRequest request{.prompt = model_->Golden("code", 200), .max_tokens = 3};
  const std::unique_ptr<Generation> generation = Make(**runner_, nullptr, request);
  std::vector<uint32_t> ends;
  while (!generation->prompt_read()) {
    ASSERT_TRUE(generation->ReadPromptChunk().ok());
    ends.push_back(generation->prompt_tokens_read());
  }
  const PromptCutRule rule = PromptCutRuleOf((*runner_)->options().limits, model_->tokenizer());
  EXPECT_EQ(ends, PromptCuts(request.prompt, rule));
  EXPECT_EQ(generation->output().size(), 1u);
}

// A text is scored as a prompt is read: its logits are those that a first token is chosen from.
TEST_F(WindowBatchTest, ScoringReadsATextAsAPromptIsRead) {
  std::vector<TokenId> text = model_->Golden("code", 65);
  for (const char* turn : {"Say it again.", "And again, at length, as if nobody had heard it."}) {
    const std::vector<TokenId> more = model_->Chat(turn);
    text.insert(text.end(), more.begin(), more.end());
  }
  const PromptCutRule rule = PromptCutRuleOf((*runner_)->options().limits, model_->tokenizer());
  ASSERT_GE(PromptCuts(text, rule).size(), 3u);
  for (const size_t length : {size_t{65}, text.size()}) {  // the last pass of the former is one row
    const std::vector<TokenId> prompt(text.begin(), text.begin() + static_cast<ptrdiff_t>(length));
    std::vector<float> last;
    const auto score = ScoreTokens(
        **runner_, prompt,
        {.on_logits = [&](uint32_t,
                          std::span<const float> row) { last.assign(row.begin(), row.end()); },
         .cut_rule = rule});
    ASSERT_TRUE(score.ok()) << score.status();
    GenerationRequest request{.prompt = prompt, .max_tokens = 1, .wants_logprobs = true};
    request.top_logprobs = kTopLogprobsMax;
    const Result alone = Alone(**runner_, request);
    std::vector<TokenLogprob> top(kTopLogprobsMax);
    ASSERT_EQ(alone.chosen.size(), 1u);
    EXPECT_EQ(alone.chosen[0], ReadLogprobs(last, alone.tokens[0], top));
    EXPECT_EQ(alone.logits_xxh3, XXH3_64bits(last.data(), last.size() * sizeof(float)));
  }
}

TEST_F(WindowBatchTest, AWindowOfSeveralAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer owns operator new";
  WindowBatch batch(**runner_, clock_);
  std::vector<std::unique_ptr<Generation>> generations;
  std::vector<WindowShare> shares;
  for (const char* text : {"def f(x):\n", "import os\n", "class A:\n"}) {
    GenerationRequest request{.prompt = model_->Tokens(text),
                              .max_tokens = 200,
                              .drafts_max = 2,
                              .ignore_stop_tokens = true,
                              .hash_logits = false};
    generations.push_back(Make(**runner_, &batch, request));
    ASSERT_TRUE(generations.back()->ReadPrompt(nullptr).ok());
    shares.push_back({.generation = generations.back().get(), .drafts_max = 2});
  }
  for (int i = 0; i < 3; ++i) batch.Run(shares);
  const uint64_t before = AllocationCount();
  uint32_t windows = 0;
  for (; windows < 20 && !generations[0]->finished() && !generations[1]->finished() &&
         !generations[2]->finished();
       ++windows) {
    batch.Run(shares);
  }
  ASSERT_EQ(windows, 20u);
  // The texts that nobody has taken grow by doubling: 15 to 240 bytes in four steps each.
  EXPECT_LE(AllocationCount() - before, 12u);
}

TEST_F(WindowBatchTest, AccountsOfEachAddUpToThoseOfTheWindow) {
  WindowBatch batch(**runner_, clock_);
  std::vector<std::unique_ptr<Generation>> generations;
  std::vector<WindowShare> shares;
  for (const char* text : {"def f(x):\n", "import os\n"}) {
    generations.push_back(
        Make(**runner_, &batch, {.prompt = model_->Tokens(text), .max_tokens = 20}));
    ASSERT_TRUE(generations.back()->ReadPrompt(nullptr).ok());
    shares.push_back({.generation = generations.back().get()});
  }
  const auto entries = [&] {
    return (*runner_)->experts().tiers().ledger().total().total().entries;
  };
  const auto served = [&](size_t i) { return generations[i]->stats().served.total().entries; };
  const uint64_t before = entries(), before_a = served(0), before_b = served(1);
  const uint64_t bytes_before = (*runner_)->bytes_read().total();
  batch.Run(shares);
  EXPECT_EQ(batch.last_rows(), 2u);
  EXPECT_EQ(served(0) - before_a + served(1) - before_b, entries() - before);
  EXPECT_EQ(served(0) - before_a, served(1) - before_b) << "a row each";
  EXPECT_EQ(generations[0]->stats().decode_bytes + generations[1]->stats().decode_bytes,
            (*runner_)->bytes_read().total() - bytes_before);
}

}  // namespace
}  // namespace hearth
