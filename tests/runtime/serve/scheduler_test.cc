// What a client is told does not depend on who else is served; the queue is bounded and fair;
// prompts yield to decoding; memory is counted; and what ended leaves nothing behind.
#include "runtime/serve/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/prng.h"
#include "tests/runtime/serve/scheduler_rig.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

TEST_F(SchedulerTest, EveryoneGetsWhatTheyGetAlone) {
  const std::vector<CompletionRequest> requests = Mixture();
  std::vector<Answer> alone;
  for (const CompletionRequest& r : requests) alone.push_back(Alone(r));
  for (const uint32_t sequences : {1u, 3u, 8u, 16u}) {
    for (const uint32_t drafts : {0u, 3u}) {
      SCOPED_TRACE(std::to_string(sequences) + " sequences, drafts " + std::to_string(drafts));
      Start({.sequences_max = sequences, .drafts_max = drafts});
      std::vector<std::shared_ptr<Client>> clients;
      for (int copy = 0; copy < 2; ++copy) {
        for (const CompletionRequest& r : requests) clients.push_back(Send(r));
      }
      RunAll();
      for (size_t i = 0; i < clients.size(); ++i) {
        SCOPED_TRACE("request " + std::to_string(i));
        ExpectAnswer(*clients[i], alone[i % alone.size()]);
      }
      ExpectIdle();
    }
  }
}

TEST_F(SchedulerTest, WindowsHoldRowsOfManyOrDraftsOfFew) {
  const CompletionRequest request{
      .prompt = model_->Tokens("def f(x):\n"), .max_tokens = 20, .ignore_stop_tokens = true};
  Start({.sequences_max = 12, .drafts_max = 3});
  const auto alone = Send(request);
  RunAll();
  ServeCounters c = scheduler_->counters();
  EXPECT_GT(c.windows_by_rows[3], 0u) << "one sequence: a row and three drafts";
  EXPECT_GT(c.accepted[0], 0u);
  for (size_t rows = 5; rows <= 9; ++rows) EXPECT_EQ(c.windows_by_rows[rows - 1], 0u);
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 12; ++i) clients.push_back(Send(request));
  RunAll();
  c = scheduler_->counters();
  EXPECT_GT(c.windows_by_rows[8], 0u) << "nine of twelve sequences in a window";
  for (const auto& client : clients) EXPECT_EQ(client->told().text, alone->told().text);
}

TEST_F(SchedulerTest, ALongPromptYieldsToThoseWhoDecode) {
  Start({});
  const auto decoding =
      Send({.prompt = model_->Tokens("def f(x):\n"), .max_tokens = 60, .ignore_stop_tokens = true});
  RunUntilText(*decoding);
  const auto reading = Send({.prompt = model_->Golden("code", 640), .max_tokens = 2});
  uint32_t rounds = 0, deltas = decoding->told().deltas;
  while (scheduler_->counters().prompt_passes < 1 + 10) {
    ASSERT_TRUE(scheduler_->RunRound());
    ++rounds;
    EXPECT_EQ(scheduler_->counters().prompt_passes, 1 + rounds) << "one pass of 64 tokens a round";
  }
  EXPECT_GE(decoding->told().deltas, deltas + 7) << "a token a round, but for held back text";
  RunAll();
  EXPECT_TRUE(reading->done());
}

TEST_F(SchedulerTest, SeveralPromptsAreReadInTurns) {
  Start({});
  const auto longer = Send({.prompt = model_->Golden("code", 640), .max_tokens = 1});
  const auto shorter = Send({.prompt = model_->Golden("prose", 128), .max_tokens = 1});
  for (int round = 0; round < 4; ++round) ASSERT_TRUE(scheduler_->RunRound());
  EXPECT_TRUE(shorter->done());
  EXPECT_FALSE(longer->done());
  RunAll();
}

TEST_F(SchedulerTest, HigherPrioritiesGoFirstAndArrivalsInOrder) {
  Start({.sequences_max = 1});
  CompletionRequest request{.prompt = model_->Tokens("x"), .max_tokens = 1};
  std::vector<std::shared_ptr<Client>> clients;
  for (const Priority p :
       {Priority::kLow, Priority::kNormal, Priority::kHigh, Priority::kNormal, Priority::kHigh}) {
    request.priority = p;
    clients.push_back(Send(request));
  }
  std::vector<size_t> order;
  std::vector<bool> seen(clients.size());
  do {
    for (size_t i = 0; i < clients.size(); ++i) {
      if (clients[i]->done() && !seen[i]) {
        order.push_back(i);
        seen[i] = true;
      }
    }
  } while (scheduler_->RunRound() || order.size() < clients.size());
  EXPECT_EQ(order, (std::vector<size_t>{2, 4, 1, 3, 0}));
}

TEST_F(SchedulerTest, WaitingRaisesAPriority) {
  Start({.sequences_max = 1, .aging_ns = kSecondNs});
  CompletionRequest request{.prompt = model_->Tokens("x"), .max_tokens = 1};
  request.priority = Priority::kLow;
  const auto low = Send(request);
  clock_.Advance(3 * kSecondNs);
  request.priority = Priority::kHigh;
  const auto high = Send(request);
  ASSERT_TRUE(scheduler_->RunRound());
  EXPECT_TRUE(low->done());
  EXPECT_FALSE(high->done());
  RunAll();
}

TEST_F(SchedulerTest, AFullQueueRefusesAndTakesAgainWhenThereIsRoom) {
  Start({.sequences_max = 1, .queue_max = 2});
  const CompletionRequest request{.prompt = model_->Tokens("x"), .max_tokens = 1};
  const auto first = Send(request), second = Send(request);
  const absl::Status refused = Refusal(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 requests wait"));
  ASSERT_TRUE(scheduler_->RunRound());
  const auto third = Send(request);
  RunAll();
  for (const auto& client : {first, second, third}) EXPECT_TRUE(client->told().end.has_value());
  EXPECT_EQ(scheduler_->counters().refused[static_cast<size_t>(Refusal::kQueueFull)], 1u);
  ExpectIdle();
}

TEST_F(SchedulerTest, AdmitsWhatTheMemoryHolds) {
  const CompletionRequest request{
      .prompt = model_->Golden("code", 64), .max_tokens = 64, .ignore_stop_tokens = true};
  const uint64_t one = *(*runner_)->SequenceBytes(128);
  Start({.context_tokens_max = 512, .state_budget_bytes = 2 * one + one / 2});
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(Send(request));
  uint32_t most = 0;
  while (scheduler_->RunRound()) {
    const ServeCounters c = scheduler_->counters();
    most = std::max(most, c.reading + c.decoding);
  }
  EXPECT_EQ(most, 2u);
  for (const auto& client : clients) EXPECT_EQ(client->told().end->output_tokens, 64u);
  // Never: the answer says how much it takes.
  CompletionRequest large = request;
  large.max_tokens = 448;
  Start({.context_tokens_max = 512, .state_budget_bytes = one});
  EXPECT_EQ(Refusal(large).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SchedulerTest, ShowsWhoIsAtHand) {
  Start({.sequences_max = 2});
  CompletionId ids[3];
  const CompletionRequest request{.prompt = model_->Golden("code", 128), .max_tokens = 8};
  for (CompletionId& id : ids) Send(request, &id);
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(scheduler_->RunRound());
  const ServeCounters c = scheduler_->counters();
  ASSERT_EQ(c.shown_count, 3u);
  EXPECT_EQ(c.shown[0].id, ids[0]);
  EXPECT_EQ(c.shown[0].phase, RequestPhase::kDecoding);
  EXPECT_EQ(c.shown[1].phase, RequestPhase::kReading);
  EXPECT_EQ(c.shown[1].read_tokens, 64u);
  EXPECT_EQ(c.shown[2].phase, RequestPhase::kQueued);
  EXPECT_EQ(c.shown[2].prompt_tokens, 128u);
  RunAll();
  ExpectIdle();
}

TEST_F(SchedulerTest, APromptThatBeginsAsAnotherDidIsNotReadAgain) {
  PrefixCache prefixes((*runner_)->imager(), {.ram_budget_bytes = 64 << 20, .spacing_tokens = 64});
  CompletionRequest request{.prompt = model_->Golden("code", 300), .max_tokens = 20};
  const Answer want = Alone(request);
  for (const uint32_t drafts : {0u, 3u}) {
    Start({.drafts_max = drafts}, &prefixes);
    for (const uint32_t reused : {0u, 256u, 256u}) {
      const auto client = Send(request);
      RunAll();
      ExpectAnswer(*client, want);
      EXPECT_EQ(client->told().end->reused_tokens, reused);
      EXPECT_EQ(client->told().end->prompt_tokens, 300u);
      EXPECT_EQ(client->told().end->stats.drafted[0] > 0, drafts > 0);
    }
    // Nobody finds what was kept under another salt.
    request.cache_salt = "another " + std::to_string(drafts);
    const auto other = Send(request);
    RunAll();
    ExpectAnswer(*other, want);
    EXPECT_EQ(other->told().end->reused_tokens, 0u);
    request.cache_salt.clear();
    EXPECT_EQ(scheduler_->counters().reused_tokens, 512u);
    EXPECT_EQ(scheduler_->counters().prompt_tokens, 4 * 300u - 512u);
    prefixes.Clear();
  }
}

TEST_F(SchedulerTest, DrainFinishesWhatIsAtHandAndTakesNoMore) {
  Start({.sequences_max = 2});
  std::vector<std::shared_ptr<Client>> clients;
  const std::vector<CompletionRequest> requests = Mixture();
  for (const CompletionRequest& r : requests) clients.push_back(Send(r));
  std::thread engine([&] { scheduler_->Serve(); });
  scheduler_->Drain();
  EXPECT_EQ(Refusal(requests[0]).code(), absl::StatusCode::kUnavailable);
  engine.join();
  for (const auto& client : clients) EXPECT_TRUE(client->told().end.has_value());
  ExpectIdle();
}

TEST_F(SchedulerTest, StopEndsWhatIsAtHand) {
  Start({.sequences_max = 2});
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Send({.prompt = model_->Tokens("def f(x):\n"), .ignore_stop_tokens = true}));
  }
  std::thread engine([&] { scheduler_->Serve(); });
  while (clients[1]->told().deltas == 0) std::this_thread::yield();
  scheduler_->Stop();
  engine.join();
  for (const auto& client : clients) {
    EXPECT_EQ(client->told().error.code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(client->told().told_after_end);
  }
  ExpectIdle();
}

TEST_F(SchedulerTest, WhoIsAtHandWhenASchedulerGoesIsTold) {
  Start({.sequences_max = 1});
  const auto begun = Send({.prompt = model_->Tokens("x")}), queued = Send({.prompt = {5}});
  ASSERT_TRUE(scheduler_->RunRound());
  scheduler_.reset();
  EXPECT_EQ(begun->told().error.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(queued->told().error.code(), absl::StatusCode::kUnavailable);
}

// Clients on threads of their own, some of whom go away: what the others get is theirs alone.
TEST_F(SchedulerTest, ManyThreadsMayAskAtOnce) {
  const std::vector<CompletionRequest> requests = Mixture();
  std::vector<Answer> alone;
  for (const CompletionRequest& r : requests) alone.push_back(Alone(r));
  Start({.sequences_max = 6, .drafts_max = 3});
  std::thread engine([&] { scheduler_->Serve(); });
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Prng prng(t);
      for (int i = 0; i < 6; ++i) {
        const size_t which = prng.Below(requests.size());
        CompletionId id = 0;
        const auto client = Send(requests[which], &id);
        const bool leaves = prng.Below(3) == 0;
        if (leaves) {
          if (prng.Below(2) == 0) {
            while (!client->done() && client->told().deltas == 0) std::this_thread::yield();
          }
          scheduler_->Cancel(id);
        }
        while (!client->done()) std::this_thread::yield();
        if (client->told().end->finish != FinishReason::kCancelled) {
          ExpectAnswer(*client, alone[which]);
        } else {
          EXPECT_TRUE(leaves);
          EXPECT_EQ(alone[which].text.find(client->told().text), 0u);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  scheduler_->Drain();
  engine.join();
  ExpectIdle();
  EXPECT_EQ(scheduler_->counters().submitted, 48u);
}

TEST_F(SchedulerTest, RefusesOptionsThatCannotWork) {
  const auto refused = [&](const SchedulerOptions& options) {
    return Scheduler::Create(
               {.runner = **runner_, .tokenizer = model_->tokenizer(), .clock = clock_}, options)
        .status()
        .code();
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(refused({.sequences_max = 0}), kInvalid);
  EXPECT_EQ(refused({.queue_max = 0}), kInvalid);
  EXPECT_EQ(refused({.context_tokens_max = 8193}), kInvalid);
  EXPECT_EQ(refused({.drafts_max = 9}), kInvalid);
  EXPECT_EQ(refused({.drafting_sequences_max = 0}), kInvalid);
  EXPECT_EQ(refused({.state_budget_bytes = 1000}), kInvalid);
  EXPECT_EQ(refused({.timeout_ns = -1}), kInvalid);
  EXPECT_EQ(refused({.aging_ns = 0}), kInvalid);
}

}  // namespace
}  // namespace hearth
