// From a request on a path to what its client is sent, with a service that does as told.
#include "runtime/serve/api_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/clock.h"
#include "runtime/serve/answer_stream.h"
#include "runtime/serve/server_log.h"
#include "runtime/serve/task_pool.h"
#include "runtime/serve/telemetry_feed.h"
#include "tests/runtime/serve/api/api_fixture.h"
#include "tests/runtime/serve/recording_client.h"

namespace hearth {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Takes requests, and keeps them and who is told.
class ScriptedService final : public CompletionService {
 public:
  absl::StatusOr<CompletionId> Submit(CompletionRequest request,
                                      std::shared_ptr<CompletionSink> sink) override {
    if (!refusal.ok()) return refusal;
    if (end_at_once) sink->OnEnd({.finish = FinishReason::kStop});
    requests.push_back(std::move(request));
    sinks.push_back(std::move(sink));
    ++submitted;
    return requests.size();
  }
  void Cancel(CompletionId id) override { cancelled.push_back(id); }

  absl::Status refusal;
  bool end_at_once = false;
  std::atomic<size_t> submitted = 0;
  std::vector<CompletionRequest> requests;
  std::vector<std::shared_ptr<CompletionSink>> sinks;
  std::vector<CompletionId> cancelled;
};

class ApiRoutes : public testing::Test {
 protected:
  ApiRoutes() {
    AddApiRoutes({.facts = model_.facts,
                  .service = service_,
                  .tasks = *tasks_,
                  .feed = feed_,
                  .traces = traces_,
                  .log = log_,
                  .health = [this] { return health_; },
                  .telemetry = [] { return TelemetrySnapshot(); },
                  .random = [this] { return ++random_; },
                  .unix_seconds = [] { return int64_t{1'700'000'000}; }},
                 routes_);
  }

  // Handles it and waits for the pool.
  std::shared_ptr<RecordingClient> Ask(const std::string& method, const std::string& path,
                                       const std::string& body = "",
                                       std::vector<HttpHeader> headers = {}) {
    auto client = std::make_shared<RecordingClient>();
    if (!body.empty()) headers.push_back({"Content-Type", "application/json"});
    HttpRequest request{.method = method, .path = path, .headers = headers, .body = body};
    const size_t query = path.find('?');
    if (query != std::string::npos) {
      request.query = path.substr(query + 1);
      request.path.resize(query);
    }
    routes_.Handle(std::move(request), client);
    std::promise<void> reached;
    while (!tasks_->Add([&] { reached.set_value(); })) std::this_thread::yield();
    reached.get_future().wait();
    return client;
  }
  template <class Condition>
  static void Wait(const Condition& condition) {
    constexpr int64_t kPatienceNs = 20'000'000'000;
    SteadyClock clock;
    const int64_t end_ns = clock.NowNs() + kPatienceNs;
    while (!condition() && clock.NowNs() < end_ns) std::this_thread::yield();
    ASSERT_TRUE(condition());
  }
  static nlohmann::json JsonOf(const RecordingClient& client) {
    return nlohmann::json::parse(client.reply().value_or(HttpReply{}).body);
  }

  ApiModel model_;
  ScriptedService service_;
  Health health_{.ready = true};
  uint64_t random_ = 0;
  std::ostringstream talk_;
  ServerLog log_{talk_, LogLevel::kInfo};
  TelemetryFeed feed_{[] { return std::string("{\"n\":1}"); }};
  TraceRequests traces_;
  HttpRoutes routes_;
  std::unique_ptr<TaskPool> tasks_ = std::make_unique<TaskPool>(1, 8);
};

constexpr char kAsk[] =
    R"({"enable_thinking": false, "messages": [{"role": "user", "content": "hi"}]})";
constexpr char kStream[] =
    R"({"stream": true, "enable_thinking": false,
        "messages": [{"role": "user", "content": "hi"}]})";

TEST_F(ApiRoutes, AnAnswerIsSentWholeWhenItIsOver) {
  const auto client = Ask("POST", "/v1/chat/completions", kAsk);
  ASSERT_EQ(service_.sinks.size(), 1u);
  EXPECT_FALSE(client->finished());
  service_.sinks[0]->OnDelta({.text = "Hel", .tokens = 1});
  service_.sinks[0]->OnDelta({.text = "lo", .tokens = 1});
  EXPECT_FALSE(client->finished());
  service_.sinks[0]->OnEnd({.finish = FinishReason::kStop, .output_tokens = 3});
  ASSERT_TRUE(client->reply());
  EXPECT_EQ(client->reply()->status, 200);
  EXPECT_EQ(JsonOf(*client)["choices"][0]["message"]["content"], "Hello");
  EXPECT_THAT(talk_.str(), HasSubstr("/v1/chat/completions 200 stop"));
  EXPECT_THAT(talk_.str(), Not(HasSubstr("Hello"))) << "nothing that is said is logged";
}

TEST_F(ApiRoutes, AStreamBeginsBeforeTheFirstToken) {
  const auto client = Ask("POST", "/v1/chat/completions", kStream);
  ASSERT_TRUE(client->head());
  EXPECT_EQ(client->head()->content_type, "text/event-stream");
  EXPECT_THAT(client->stream(), HasSubstr("\"role\":\"assistant\""));
  service_.sinks[0]->OnDelta({.text = "Hello", .tokens = 1});
  EXPECT_THAT(client->stream(), HasSubstr("Hello"));
  service_.sinks[0]->OnEnd({.finish = FinishReason::kLength});
  EXPECT_TRUE(client->finished());
  EXPECT_THAT(EventData(client->stream()).back(), "[DONE]");
}

TEST_F(ApiRoutes, AnEndThatIsFasterThanSubmitIsTold) {
  service_.end_at_once = true;
  const auto stream = Ask("POST", "/v1/chat/completions", kStream);
  EXPECT_TRUE(stream->finished());
  EXPECT_EQ(EventData(stream->stream()).back(), "[DONE]");
  EXPECT_EQ(EventData(stream->stream()).size(), Events(stream->stream()).size() + 1);
  EXPECT_TRUE(Ask("POST", "/v1/chat/completions", kAsk)->reply());
}

TEST_F(ApiRoutes, AFailureBeforeAnythingWasSentHasAStatus) {
  const auto whole = Ask("POST", "/v1/chat/completions", kAsk);
  service_.sinks[0]->OnError(absl::DeadlineExceededError("too long"));
  EXPECT_EQ(whole->reply()->status, 504);
  const auto stream = Ask("POST", "/v1/messages",
                          R"({"stream": true, "max_tokens": 9, "model": "flashlet",
                              "messages": [{"role": "user", "content": "hi"}]})");
  service_.sinks[1]->OnError(absl::InternalError("secret of ours"));
  EXPECT_FALSE(stream->reply());
  EXPECT_THAT(stream->stream(), HasSubstr("event: error"));
  EXPECT_THAT(stream->stream(), Not(HasSubstr("secret")));
  EXPECT_TRUE(stream->finished());
}

TEST_F(ApiRoutes, RefusalsKeepTheirDialectAndSayWhenToTryAgain) {
  service_.refusal = absl::ResourceExhaustedError("the queue is full");
  const auto full = Ask("POST", "/v1/chat/completions", kStream);
  EXPECT_EQ(full->reply()->status, 429);
  ASSERT_EQ(full->reply()->headers.size(), 1u);
  EXPECT_EQ(full->reply()->headers[0].name, "Retry-After");
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", "{")->reply()->status, 400);
  const auto anthropic = Ask("POST", "/v1/messages", "{}");
  EXPECT_EQ(anthropic->reply()->status, 400);
  EXPECT_EQ(JsonOf(*anthropic)["type"], "error");
  EXPECT_TRUE(service_.requests.empty());
}

TEST_F(ApiRoutes, AClientThatGoesAwayIsCancelled) {
  const auto first = Ask("POST", "/v1/chat/completions", kAsk);
  const auto second = Ask("POST", "/v1/chat/completions", kStream);
  second->GoAway();
  EXPECT_THAT(service_.cancelled, ElementsAre(2));
  first->GoAway();
  EXPECT_THAT(service_.cancelled, ElementsAre(2, 1));
  service_.sinks[0]->OnEnd({.finish = FinishReason::kCancelled});
  service_.sinks[1]->OnEnd({.finish = FinishReason::kCancelled});
}

TEST_F(ApiRoutes, EveryRequestHasASeedAndANameOfItsOwn) {
  Ask("POST", "/v1/chat/completions", kAsk);
  Ask("POST", "/v1/chat/completions", kAsk);
  ASSERT_EQ(service_.requests.size(), 2u);
  EXPECT_NE(service_.requests[0].sampling.seed, service_.requests[1].sampling.seed);
}

TEST_F(ApiRoutes, HealthIsAStatus) {
  EXPECT_EQ(Ask("GET", "/health")->reply()->status, 200);
  health_.stopping = true;
  EXPECT_EQ(Ask("GET", "/health")->reply()->status, 503);
}

TEST_F(ApiRoutes, ModelsSpeakTheDialectOfWhoAsks) {
  EXPECT_EQ(JsonOf(*Ask("GET", "/v1/models"))["object"], "list");
  EXPECT_TRUE(JsonOf(*Ask("GET", "/v1/models", "", {{"anthropic-version", "2023-06-01"}}))
                  .contains("has_more"));
  EXPECT_EQ(Ask("GET", "/v1/models/nobody's")->reply()->status, 404);
  EXPECT_EQ(Ask("GET", "/v1/models/" + model_.facts.id)->reply()->status, 200);
}

TEST_F(ApiRoutes, TelemetryIsAnObjectOrAStream) {
  const auto object = Ask("GET", "/v1/telemetry", "", {{"Accept", "application/json"}});
  EXPECT_EQ(JsonOf(*object)["schema"], "hearth.telemetry");
  const auto stream = Ask("GET", "/v1/telemetry");
  EXPECT_EQ(stream->stream(), "data: {\"n\":1}\n\n");
  Wait([&] { return stream->stream().size() > 20; });  // the next second's
  const auto slow = Ask("GET", "/v1/telemetry");
  slow->set_queued_bytes(1 << 20);
  const size_t before = slow->stream().size();
  const size_t seen = stream->stream().size();
  Wait([&] { return stream->stream().size() > seen; });
  EXPECT_EQ(slow->stream().size(), before) << "who does not read is not sent more";
  feed_.Stop();
  EXPECT_TRUE(stream->finished());
  EXPECT_EQ(Ask("GET", "/v1/telemetry")->reply()->status, 429);
}

TEST_F(ApiRoutes, TracesRefuseWhatIsBeyondTheirLimits) {
  EXPECT_EQ(Ask("POST", "/v1/trace?windows=0")->reply()->status, 400);
  EXPECT_EQ(Ask("POST", "/v1/trace?windows=abc")->reply()->status, 400);
  EXPECT_EQ(Ask("POST", "/v1/trace?wait_sec=1e9")->reply()->status, 400);
  traces_.Stop();
  EXPECT_EQ(Ask("POST", "/v1/trace?windows=1")->reply()->status, 503);
}

TEST_F(ApiRoutes, WhatIsNotServedIsRefusedByName) {
  const auto reply = Ask("POST", "/v1/embeddings", "{}")->reply();
  EXPECT_EQ(reply->status, 501);
  EXPECT_THAT(reply->body, HasSubstr("/v1/embeddings"));
}

TEST_F(ApiRoutes, AFullPoolIsToldAtOnce) {
  bool release = false;
  std::mutex mutex;
  std::condition_variable wake;
  ASSERT_TRUE(tasks_->Add([&] {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return release; });
  }));
  std::vector<std::shared_ptr<RecordingClient>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_shared<RecordingClient>());
    routes_.Handle({.method = "POST",
                    .path = "/v1/chat/completions",
                    .headers = {{"Content-Type", "application/json"}},
                    .body = kAsk},
                   clients.back());
  }
  EXPECT_EQ(clients.back()->reply().value_or(HttpReply{}).status, 429);
  {
    const std::lock_guard lock(mutex);
    release = true;
  }
  wake.notify_all();
  Wait([&] { return service_.submitted >= 7; });
  tasks_->Stop();
  EXPECT_FALSE(tasks_->Add([] {}));
}

TEST(DialectOfPath, TellsWhoIsSpokenTo) {
  EXPECT_EQ(DialectOfPath("/v1/messages/count_tokens"), Dialect::kAnthropic);
  EXPECT_EQ(DialectOfPath("/v1/completions"), Dialect::kOpenAiCompletion);
  EXPECT_EQ(DialectOfPath("/nowhere"), Dialect::kOpenAiChat);
}

TEST(ServerLog, HasLevelsAndOneLineEach) {
  std::ostringstream out;
  ServerLog log(out, LogLevel::kError);
  log.Info("not this");
  log.Error("this {}");
  log.set_level(LogLevel::kInfo);
  log.Info("and this");
  EXPECT_THAT(out.str(),
              testing::MatchesRegex("[^\n]* error: this \\{\\}\n[^\n]* info: and this\n"));
}

}  // namespace
}  // namespace hearth
