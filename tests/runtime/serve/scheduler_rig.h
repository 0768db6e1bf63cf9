// A scheduler over the small trained model, clients that write down what they are told, and what a
// request gives alone.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/engine/generation.h"
#include "runtime/serve/scheduler.h"
#include "tests/support/flashlet_fixture.h"

namespace hearth {

// Everything a client was told. Thread-safe.
class Client final : public CompletionSink {
 public:
  struct Told {
    std::string text;
    uint32_t tokens = 0;
    uint32_t deltas = 0;
    std::vector<TokenLogprob> chosen;
    std::optional<CompletionEnd> end;
    absl::Status error;
    bool done = false;
    bool told_after_end = false;
  };
  void OnDelta(CompletionDelta delta) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_.told_after_end |= told_.done;
    told_.text += delta.text;
    told_.tokens += delta.tokens;
    ++told_.deltas;
    for (const TokenReport& report : delta.report) told_.chosen.push_back(report.chosen);
  }
  void OnEnd(const CompletionEnd& end) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_.told_after_end |= told_.done;
    told_.end = end;
    told_.done = true;
  }
  void OnError(const absl::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_.told_after_end |= told_.done;
    told_.error = status;
    told_.done = true;
  }
  Told told() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return told_;
  }
  bool done() const { return told().done; }

 private:
  mutable std::mutex mutex_;
  Told told_;
};

// What a request gives alone, without drafts.
struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;
};

class SchedulerTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  void Start(const SchedulerOptions& options, PrefixCache* prefixes = nullptr) {
    absl::StatusOr<std::unique_ptr<Scheduler>> made =
        Scheduler::Create({.runner = **runner_,
                           .tokenizer = model_->tokenizer(),
                           .clock = clock_,
                           .prefixes = prefixes},
                          options);
    ASSERT_TRUE(made.ok()) << made.status();
    scheduler_ = *std::move(made);
  }

  // One that is taken in.
  std::shared_ptr<Client> Send(const CompletionRequest& request, CompletionId* id = nullptr) {
    auto client = std::make_shared<Client>();
    const absl::StatusOr<CompletionId> sent = scheduler_->Submit(request, client);
    EXPECT_TRUE(sent.ok()) << sent.status();
    if (id != nullptr && sent.ok()) *id = *sent;
    return client;
  }
  absl::Status Refusal(const CompletionRequest& request) {
    const auto client = std::make_shared<Client>();
    const absl::Status status = scheduler_->Submit(request, client).status();
    EXPECT_FALSE(client->done()) << "who is refused is told at once and only so";
    return status;
  }
  void RunAll() {
    while (scheduler_->RunRound()) {
    }
  }
  // Rounds until `client` has been told something.
  void RunUntilText(const Client& client) {
    while (client.told().deltas == 0 && scheduler_->RunRound()) {
    }
  }

  static Answer Alone(const CompletionRequest& request, uint32_t context_tokens_max = 0) {
    const uint32_t context =
        context_tokens_max != 0 ? context_tokens_max : (*runner_)->geometry().context_tokens_max;
    SteadyClock clock;
    auto made = Generation::Create(**runner_, model_->tokenizer(), clock,
                                   {.prompt = request.prompt,
                                    .max_tokens = request.max_tokens.value_or(context),
                                    .ignore_stop_tokens = request.ignore_stop_tokens,
                                    .sampling = request.sampling,
                                    .stop_strings = request.stop_strings,
                                    .context_tokens_max = context});
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return {};
    Generation& generation = **made;
    EXPECT_TRUE(generation.ReadPrompt(nullptr).ok());
    while (!generation.finished()) EXPECT_TRUE(generation.Step().ok());
    return {.text = generation.TakeText(),
            .tokens = {generation.output().begin(), generation.output().end()},
            .finish = generation.finish(),
            .stop_string = std::string(generation.stop_string())};
  }

  static void ExpectAnswer(const Client& client, const Answer& want) {
    const Client::Told told = client.told();
    EXPECT_TRUE(told.error.ok()) << told.error;
    EXPECT_FALSE(told.told_after_end);
    ASSERT_TRUE(told.end.has_value());
    EXPECT_EQ(told.text, want.text);
    EXPECT_EQ(told.end->finish, want.finish) << FinishReasonName(told.end->finish);
    EXPECT_EQ(told.end->stop_string, want.stop_string);
    EXPECT_EQ(told.end->output_tokens, want.tokens.size());
    EXPECT_LE(told.tokens, want.tokens.size());
    if (told.chosen.empty()) return;
    ASSERT_LE(told.chosen.size(), want.tokens.size());
    for (size_t i = 0; i < told.chosen.size(); ++i) {
      EXPECT_EQ(told.chosen[i].token, want.tokens[i]);
    }
  }

  // Nothing is left at hand, and all that came has ended.
  void ExpectIdle() {
    EXPECT_FALSE(scheduler_->RunRound());
    const ServeCounters c = scheduler_->counters();
    EXPECT_EQ(c.queued + c.reading + c.decoding, 0u);
    EXPECT_EQ(c.shown_count, 0u);
    uint64_t finished = 0;
    for (const uint64_t n : c.finished) finished += n;
    EXPECT_EQ(c.submitted, finished);
  }
  uint64_t Finished(FinishReason finish) const {
    return scheduler_->counters().finished[static_cast<size_t>(finish)];
  }

  // Many kinds of requests: long and short prompts, greedy and sampled, penalties, stops.
  static std::vector<CompletionRequest> Mixture() {
    std::vector<CompletionRequest> all;
    const auto add = [&](std::vector<TokenId> prompt, uint32_t max_tokens,
                         SamplingParams sampling) {
      all.push_back(
          {.prompt = std::move(prompt), .max_tokens = max_tokens, .sampling = std::move(sampling)});
      return &all.back();
    };
    add(model_->Tokens("def read_config(path):\n"), 40, {})->ignore_stop_tokens = true;
    add(model_->Chat("Write a Python function named `is_empty`."), 60, {})->wants_logprobs = true;
    add(model_->Golden("prose", 150), 30, {.temperature = 0.8f, .top_k = 40, .seed = 5});
    add(model_->Golden("code", 333), 25, {.repetition_penalty = 1.3f, .min_tokens = 10});
    add(model_->Golden("zh", 70), 35, {.temperature = 1, .top_p = 0.9f, .seed = 6});
    add(model_->Tokens("import os\n"), 50, {.frequency_penalty = 1, .presence_penalty = 0.5f})
        ->stop_strings = {"):", "\n\n\n"};
    add(model_->Golden("code", 64), 1, {});
    add(model_->Golden("prose", 65), 20, {.temperature = 0.5f, .min_p = 0.1f, .seed = 9})
        ->wants_logprobs = true;
    return all;
  }

  static std::unique_ptr<Flashlet> model_;
  static std::unique_ptr<LoadedRunner> runner_;
  FakeClock clock_;
  std::unique_ptr<Scheduler> scheduler_;
};
}  // namespace hearth
