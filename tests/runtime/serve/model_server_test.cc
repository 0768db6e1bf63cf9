// The whole server over the small trained model: starts, answers over a socket, tells what it does,
// and ends.
#include "runtime/serve/model_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/telemetry/telemetry_json.h"
#include "tests/runtime/serve/http/http_client.h"
#include "tests/support/flashlet_fixture.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class ModelServerTest : public testing::Test {
 protected:
  ModelServerTest() : model_(HEARTH_SOURCE_DIR), runner_(model_.pack_dir(), RunnerSetup{}) {}
  ~ModelServerTest() override { End(); }

  void Start() {
    ModelServerOptions options;
    options.facts.id = "flashlet";
    options.facts.any_name = true;
    options.prefixes.ram_budget_bytes = 64 << 20;
    absl::StatusOr<ChatTemplate> chat = ChatTemplate::Load(
        std::string(HEARTH_SOURCE_DIR) + "/profiles/flashlet/chat_template.jinja");
    ASSERT_TRUE(chat.ok()) << chat.status();
    options.chat = *std::move(chat);
    auto made = ModelServer::Create({.runner = *runner_,
                                     .tokenizer = model_.tokenizer(),
                                     .clock = clock_,
                                     .log = log_,
                                     .random = [] { return uint64_t{7}; },
                                     .unix_seconds = [] { return int64_t{1'700'000'000}; }},
                                    std::move(options));
    ASSERT_TRUE(made.ok()) << made.status();
    server_ = *std::move(made);
    engine_ = std::thread([this] { server_->Serve(); });
  }
  void End() {
    if (!engine_.joinable()) return;
    server_->Shutdown(1'000'000'000);
    engine_.join();
  }
  ClientReply Ask(const std::string& method, const std::string& path,
                  const std::string& body = "") {
    std::string request = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n";
    if (!body.empty()) {
      request +=
          "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
          "\r\n";
    }
    return Client::Tcp(server_->port()).Ask(request + "\r\n" + body);
  }

  Flashlet model_;
  LoadedRunner runner_;
  SteadyClock clock_;
  std::ostringstream talk_;
  ServerLog log_{talk_, LogLevel::kError};
  std::unique_ptr<ModelServer> server_;
  std::thread engine_;
};

constexpr char kAsk[] =
    R"({"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8})";

TEST_F(ModelServerTest, AnswersTellsAndEnds) {
  Start();
  const auto first = nlohmann::json::parse(Ask("POST", "/v1/chat/completions", kAsk).body);
  const auto second = nlohmann::json::parse(Ask("POST", "/v1/chat/completions", kAsk).body);
  EXPECT_EQ(first["choices"], second["choices"]);
  EXPECT_EQ(first["usage"]["completion_tokens"], 8);
  EXPECT_THAT(Ask("GET", "/metrics").body, HasSubstr("hearth_"));
  const TelemetrySnapshot seen = server_->Telemetry();
  EXPECT_EQ(seen.engine.serve.submitted, 2u);
  EXPECT_EQ(seen.engine.serve.output_tokens, 16u);
  EXPECT_GT(seen.engine.total().of(Service::kCpu).distinct, 0u);
  EXPECT_GE(seen.http.connections, 3u);
  End();
  EXPECT_EQ(talk_.str(), "") << "nothing went wrong";
  EXPECT_EQ(server_->counters().finished[static_cast<size_t>(FinishReason::kLength)], 2u);
}

TEST_F(ModelServerTest, AStreamThatIsCutAtTheEndIsCancelled) {
  Start();
  Client client = Client::Tcp(server_->port());
  const std::string body =
      R"({"prompt": "def", "max_tokens": 8000, "stream": true, "ignore_eos": true})";
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  while (client.rest().find("\"text\"") == std::string::npos) ASSERT_TRUE(client.ReadSome());
  server_->Shutdown(0);
  EXPECT_TRUE(client.ReadUntilEnd());
  engine_.join();
  EXPECT_EQ(server_->counters().decoding, 0u);
}

TEST_F(ModelServerTest, AServerThatNeverServedEnds) {
  ModelServerOptions options;
  options.http.listen.address = "not an address";
  const auto refused = ModelServer::Create({.runner = *runner_,
                                            .tokenizer = model_.tokenizer(),
                                            .clock = clock_,
                                            .log = log_,
                                            .random = [] { return uint64_t{7}; },
                                            .unix_seconds = [] { return int64_t{0}; }},
                                           options);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
