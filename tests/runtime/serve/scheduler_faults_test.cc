// What has gone wrong in servers of this kind: end tokens within accepted drafts, penalties under
// speculation, stops over several tokens, clients who go away, prompts beyond the context, wrong
// values, requests that fail, and time that runs out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "runtime/serve/request_check.h"
#include "runtime/serve/served_request.h"
#include "tests/runtime/serve/scheduler_rig.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

class SchedulerFaults : public SchedulerTest {
 protected:
  // The same requests without drafts and with some, several at once.
  void ExpectDraftsChangeNothing(const std::vector<CompletionRequest>& requests) {
    std::vector<Answer> alone;
    for (const CompletionRequest& r : requests) alone.push_back(Alone(r));
    for (const uint32_t drafts : {1u, 3u, 8u}) {
      Start({.sequences_max = 2, .drafts_max = drafts});
      std::vector<std::shared_ptr<Client>> clients;
      for (const CompletionRequest& r : requests) clients.push_back(Send(r));
      RunAll();
      for (size_t i = 0; i < clients.size(); ++i) {
        SCOPED_TRACE("request " + std::to_string(i) + ", drafts " + std::to_string(drafts));
        ExpectAnswer(*clients[i], alone[i]);
      }
      ExpectIdle();
    }
  }
};

TEST_F(SchedulerFaults, AnEndInTheMiddleOfADraftEndsThere) {
  std::vector<CompletionRequest> requests;
  const std::vector<TokenId> chat =
      model_->Chat("Write a Python function named `is_empty`. Return True if the queue is empty.");
  requests.push_back({.prompt = chat, .max_tokens = 400});
  for (uint32_t limit = 1; limit <= 10; ++limit) {
    requests.push_back({.prompt = chat, .max_tokens = limit});
  }
  const Answer whole = Alone(requests[0]);
  ASSERT_EQ(whole.finish, FinishReason::kStop) << "this prompt is known to end by itself";
  for (size_t at = 10; at + 9 < whole.text.size(); at += 23) {
    requests.push_back({.prompt = chat, .max_tokens = 400});
    requests.back().stop_strings = {whole.text.substr(at, 9)};
  }
  ExpectDraftsChangeNothing(requests);
}

TEST_F(SchedulerFaults, PenaltiesActOnEveryTokenOfADraft) {
  std::vector<CompletionRequest> requests;
  for (const SamplingParams& sampling :
       {SamplingParams{.repetition_penalty = 1.3f}, SamplingParams{.frequency_penalty = 1},
        SamplingParams{.presence_penalty = 1},
        SamplingParams{.logit_bias = {{.token = 2, .bias = 4}, {.token = 300, .bias = -100}}},
        SamplingParams{.min_tokens = 25},
        SamplingParams{.temperature = 0.7f, .repetition_penalty = 1.1f, .seed = 3}}) {
    requests.push_back({.prompt = model_->Tokens("def read_config(path):\n"),
                        .max_tokens = 40,
                        .sampling = sampling});
  }
  ExpectDraftsChangeNothing(requests);
}

TEST_F(SchedulerFaults, StopStringsAreFoundAcrossTokensAndNeverSent) {
  const CompletionRequest plain{.prompt = model_->Tokens("def read_config(path):\n"),
                                .max_tokens = 60,
                                .ignore_stop_tokens = true};
  const std::string text = Alone(plain).text;
  ASSERT_GT(text.size(), 60u);
  const std::string stop = text.substr(30, 8);
  CompletionRequest request = plain;
  std::vector<std::string> hundred(100, "no such text ");
  for (size_t i = 0; i < hundred.size(); ++i) hundred[i] += std::to_string(i);
  hundred[77] = stop;
  for (const std::vector<std::string>& stops : {std::vector<std::string>{stop},
                                                {stop.substr(0, 5) + "\x01", stop},
                                                {stop, stop.substr(2)},
                                                hundred,
                                                {text.substr(text.size() - 3) + "never"}}) {
    request.stop_strings = stops;
    const Answer want = Alone(request);
    Start({.drafts_max = 3});
    const auto client = Send(request);
    RunAll();
    ExpectAnswer(*client, want);
    EXPECT_EQ(text.find(client->told().text), 0u);
    for (const std::string& s : stops) {
      EXPECT_EQ(client->told().text.find(s), std::string::npos);
    }
  }
  EXPECT_EQ(scheduler_->counters().submitted, 1u);
  // The last: a half match at the end was no match.
  EXPECT_EQ(Alone(request).text, text);
  request.stop_strings = {""};
  EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kInvalidArgument);
}

// In the queue, within a prompt, at the first token and in mid stream; one slot, a hundred times.
TEST_F(SchedulerFaults, WhoGoesAwayFreesTheSlotAtOnce) {
  const CompletionRequest endless{.prompt = model_->Golden("code", 320),
                                  .ignore_stop_tokens = true};
  const CompletionRequest normal{.prompt = model_->Tokens("def f(x):\n"), .max_tokens = 8};
  const Answer want = Alone(normal);
  for (const uint32_t drafts : {0u, 3u}) {
    Start({.sequences_max = 1, .drafts_max = drafts});
    for (int i = 0; i < 25; ++i) {
      for (const uint32_t rounds : {0u, 2u, 5u, 9u}) {  // five passes of 64 tokens read the prompt
        CompletionId id = 0;
        const auto client = Send(endless, &id);
        for (uint32_t r = 0; r < rounds; ++r) ASSERT_TRUE(scheduler_->RunRound());
        const Client::Told before = client->told();
        EXPECT_EQ(before.deltas > 0, rounds >= 5) << rounds;
        scheduler_->Cancel(id);
        ASSERT_TRUE(scheduler_->RunRound());
        const Client::Told told = client->told();
        ASSERT_TRUE(told.end.has_value());
        EXPECT_EQ(told.end->finish, FinishReason::kCancelled);
        EXPECT_EQ(told.deltas, before.deltas) << "no pass was run for nobody";
        EXPECT_FALSE(scheduler_->RunRound());
        scheduler_->Cancel(id);  // of one that has ended
      }
    }
    EXPECT_EQ(Finished(FinishReason::kCancelled), 100u);
    const auto client = Send(normal);
    RunAll();
    ExpectAnswer(*client, want);
    scheduler_->Cancel(12345);  // of nobody
    ExpectIdle();
  }
}

TEST_F(SchedulerFaults, PromptsBeyondTheContextAreRefusedWithBothLengths) {
  Start({.context_tokens_max = 64, .drafts_max = 3});
  const auto prompt = [&](uint32_t tokens) {
    return CompletionRequest{.prompt = std::vector<TokenId>(tokens, 7), .ignore_stop_tokens = true};
  };
  for (const uint32_t tokens : {64u, 65u, 10'000u}) {
    const absl::Status status = Refusal(prompt(tokens));
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(tokens)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("64"));
  }
  CompletionRequest request = prompt(60);
  for (const std::optional<uint32_t> max_tokens :
       {std::optional<uint32_t>(10), std::optional<uint32_t>(1u << 31),
        std::optional<uint32_t>(UINT32_MAX), std::optional<uint32_t>()}) {
    request.max_tokens = max_tokens;
    const auto client = Send(request);
    RunAll();
    ExpectAnswer(*client, Alone(request, 64));
    EXPECT_EQ(client->told().end->finish, FinishReason::kLength) << "the wall";
    EXPECT_EQ(client->told().end->output_tokens, 4u);
  }
  const auto last = Send(prompt(63));
  RunAll();
  EXPECT_EQ(last->told().end->output_tokens, 1u);
  request.max_tokens = 0;
  EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler_->counters().refused[static_cast<size_t>(Refusal::kContext)], 3u);
  ExpectIdle();
}

TEST_F(SchedulerFaults, WrongValuesAreRefusedByNameAndHarmNobody) {
  Start({});
  const CompletionRequest good{.prompt = model_->Tokens("def f(x):\n"), .max_tokens = 6};
  const auto running = Send(good);
  ASSERT_TRUE(scheduler_->RunRound());
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const auto refuse = [&](const char* field, auto change) {
    CompletionRequest request = good;
    change(request);
    const absl::Status status = Refusal(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  for (const float bad : {nan, infinity, -infinity, -1.0f, 1e30f}) {
    refuse("temperature", [&](auto& r) { r.sampling.temperature = bad; });
    refuse("top_p", [&](auto& r) { r.sampling.top_p = bad; });
    refuse("min_p", [&](auto& r) { r.sampling.min_p = bad; });
    refuse("repetition_penalty", [&](auto& r) { r.sampling.repetition_penalty = bad; });
  }
  for (const float bad : {nan, infinity, -2.5f, 1e30f}) {
    refuse("frequency_penalty", [&](auto& r) { r.sampling.frequency_penalty = bad; });
    refuse("presence_penalty", [&](auto& r) { r.sampling.presence_penalty = bad; });
    refuse("logit_bias", [&](auto& r) {
      r.sampling.logit_bias = {{.token = 5, .bias = bad == -2.5f ? -101 : bad}};
    });
  }
  refuse("logit_bias", [](auto& r) { r.sampling.logit_bias = {{.token = 8192, .bias = 1}}; });
  refuse("logit_bias", [](auto& r) { r.sampling.logit_bias = {{.token = -1, .bias = 1}}; });
  refuse("top_k", [](auto& r) { r.sampling.top_k = 8193; });
  refuse("top_logprobs", [](auto& r) { r.top_logprobs = 21; });
  refuse("timeout_ns", [](auto& r) { r.timeout_ns = -1; });
  refuse("cache_salt", [](auto& r) { r.cache_salt.assign(257, 'x'); });
  refuse("prompt", [](auto& r) { r.prompt.clear(); });
  refuse("prompt", [](auto& r) { r.prompt = {-1}; });
  refuse("prompt", [](auto& r) { r.prompt = {8192}; });
  RunAll();
  ExpectAnswer(*running, Alone(good));
  CompletionRequest edge = good;
  edge.sampling = {.temperature = 0, .top_k = 8192, .top_p = 1, .min_p = 0};
  const auto client = Send(edge);
  RunAll();
  ExpectAnswer(*client, Alone(good));
  ExpectIdle();
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

TEST_F(SchedulerFaults, WhoFailsFailsAlone) {
  const std::vector<CompletionRequest> requests = Mixture();
  std::vector<Answer> alone;
  for (const CompletionRequest& r : requests) alone.push_back(Alone(r));
  Start({.drafts_max = 2});
  std::vector<std::shared_ptr<Client>> clients, failing;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.push_back(Send(requests[i]));
    if (i % 2 != 0) continue;
    CompletionRequest bad{.prompt = model_->Tokens("def g(y):\n")};
    const uint32_t vocab = (*runner_)->geometry().vocab_count;
    bad.constraint = std::make_shared<DeadEnd>(vocab, static_cast<uint32_t>(i));
    failing.push_back(Send(bad));
  }
  RunAll();
  for (size_t i = 0; i < clients.size(); ++i) ExpectAnswer(*clients[i], alone[i]);
  for (const auto& client : failing) {
    EXPECT_EQ(client->told().error.code(), absl::StatusCode::kDataLoss);
    EXPECT_FALSE(client->told().told_after_end);
  }
  EXPECT_EQ(Finished(FinishReason::kError), failing.size());
  ExpectIdle();
}

// Experts that can no longer be read: requests fail, the service lives, and goes on when they can.
TEST_F(SchedulerFaults, AFailedPassFailsTheRequestsInItAndNotTheService) {
  const ExpertOptions experts{.ram = RamTier::kBudget, .ram_budget_bytes = 2 << 20};
  LoadedRunner runner(model_->pack_dir(), {.options = {.experts = experts}});
  auto made = Scheduler::Create(
      {.runner = *runner, .tokenizer = model_->tokenizer(), .clock = clock_}, {.drafts_max = 2});
  ASSERT_TRUE(made.ok()) << made.status();
  scheduler_ = *std::move(made);
  const CompletionRequest request{.prompt = model_->Golden("zh", 70), .max_tokens = 20};
  const Answer want = Alone(request);
  const std::string path = model_->pack_dir() + "/experts.bin";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  for (const uint32_t rounds : {0u, 3u}) {  // within the prompt, and in a window
    const auto a = Send(request), b = Send(request);
    for (uint32_t r = 0; r < rounds; ++r) ASSERT_TRUE(scheduler_->RunRound());
    std::filesystem::resize_file(path, 1 << 16);
    RunAll();
    EXPECT_FALSE(a->told().error.ok());
    EXPECT_FALSE(b->told().error.ok());
    EXPECT_FALSE(a->told().told_after_end);
    std::ofstream(path, std::ios::binary).write(bytes.data(), bytes.size());
    const auto c = Send(request);
    RunAll();
    ExpectAnswer(*c, want);
    ExpectIdle();
  }
  scheduler_.reset();
}

TEST_F(SchedulerFaults, TimeRunsOutInTheQueueInThePromptAndInTheAnswer) {
  const CompletionRequest endless{.prompt = model_->Golden("code", 320),
                                  .ignore_stop_tokens = true};
  for (const uint32_t rounds : {0u, 2u, 9u}) {
    for (const bool own : {false, true}) {  // the request's limit or the service's
      Start({.sequences_max = 1, .timeout_ns = own ? 100 * kSecondNs : 5 * kSecondNs});
      CompletionRequest request = endless;
      request.timeout_ns = own ? 5 * kSecondNs : 100 * kSecondNs;
      const auto client = Send(request);
      clock_.Advance(5 * kSecondNs - 1);
      for (uint32_t r = 0; r < rounds; ++r) ASSERT_TRUE(scheduler_->RunRound());
      EXPECT_FALSE(client->done());
      clock_.Advance(1);
      ASSERT_TRUE(scheduler_->RunRound());
      EXPECT_EQ(client->told().error.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_EQ(client->told().deltas > 0, rounds == 9) << "what was told stays told";
      ExpectIdle();
    }
  }
}

TEST_F(SchedulerFaults, TellsWhenThingsHappened) {
  Start({.sequences_max = 1});
  const auto first = Send({.prompt = model_->Golden("code", 128), .max_tokens = 3});
  const auto second = Send({.prompt = model_->Tokens("x"), .max_tokens = 1});
  for (int round = 0; round < 6; ++round) {
    clock_.Advance(kSecondNs);
    if (!scheduler_->RunRound()) break;
  }
  // Begun after 1 s; passes at 1 and 2 s, windows with the second pass and at 3 s.
  const CompletionEnd a = *first->told().end, b = *second->told().end;
  EXPECT_EQ(a.queued_ns, kSecondNs);
  EXPECT_EQ(a.first_token_ns, 2 * kSecondNs);
  EXPECT_EQ(a.total_ns, 3 * kSecondNs);
  EXPECT_EQ(b.queued_ns, 4 * kSecondNs);
  EXPECT_EQ(b.total_ns, 4 * kSecondNs);
  EXPECT_EQ(a.stats.windows, 2u);
  const ServeCounters c = scheduler_->counters();
  EXPECT_EQ(c.queue_wait.count(), 2u);
  EXPECT_EQ(c.first_token.sum_ns, 6 * kSecondNs);
  EXPECT_EQ(c.output_tokens, 4u);
  EXPECT_EQ(c.prompt_tokens, 129u);
}

}  // namespace
}  // namespace hearth
