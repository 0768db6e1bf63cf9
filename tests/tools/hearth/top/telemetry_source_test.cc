// The way to a server: its one object or the first event of its stream, with the key, over TCP and
// a UNIX socket; a server that is not there, hangs, refuses, talks nonsense or restarts is said so
// and asked again.
#include "tools/hearth/top/telemetry_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include <httplib.h>

#include "runtime/serve/telemetry/telemetry_json.h"
#include "tests/runtime/serve/telemetry/telemetry_fixture.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSoonNs = 1'000'000;
constexpr int64_t kWaitNs = 10'000'000'000;

class Server {
 public:
  explicit Server(httplib::Server::Handler handler) {
    server_.Get("/v1/telemetry", std::move(handler));
    port_ = server_.bind_to_any_port("127.0.0.1");
    Run();
  }
  Server(httplib::Server::Handler handler, const std::string& path) {
    server_.Get("/v1/telemetry", std::move(handler));
    server_.set_address_family(AF_UNIX);
    server_.bind_to_port(path, 80);
    Run();
  }
  ~Server() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  void Run() {
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

httplib::Server::Handler Answers(std::string body, const char* type = "application/json") {
  return [body = std::move(body), type](const httplib::Request&, httplib::Response& response) {
    response.set_content(body, type);
  };
}

absl::StatusOr<std::string> AskOnce(const std::string& url, const std::string& key = "") {
  auto source = OpenHttpSource({.url = url, .key = key, .wait_ns = kWaitNs});
  if (!source.ok()) return source.status();
  return (*source)->Next();
}

std::string TempFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

// Until `is_so`, for a feed's thread to come that far.
SnapshotFeed::State Await(const SnapshotFeed& feed,
                          const std::function<bool(const SnapshotFeed::State&)>& is_so) {
  while (!is_so(feed.state())) std::this_thread::yield();
  return feed.state();
}

TEST(HttpSource, AnObjectIsTheAnswerAndAskingAgainWorks) {
  const Server server(Answers("{\"a\":1}"));
  auto source = OpenHttpSource({.url = server.url(), .wait_ns = kWaitNs});
  ASSERT_TRUE(source.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*(*source)->Next(), "{\"a\":1}");
}

TEST(HttpSource, OfAStreamTheFirstEventIsTaken) {
  const Server server([](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/event-stream", [](size_t, httplib::DataSink& sink) {
      // In pieces, with a comment before and more events after, for ever.
      for (const std::string piece :
           {": hello\n\n", "data: {\"a\"", ":2}\r\n\r\n", "data: 3\n\n"}) {
        if (!sink.write(piece.data(), piece.size())) return false;
      }
      return true;
    });
  });
  EXPECT_EQ(*AskOnce(server.url()), "{\"a\":2}");
}

TEST(HttpSource, TheKeyGoesAlong) {
  const Server server([](const httplib::Request& request, httplib::Response& response) {
    const bool ok = request.get_header_value("Authorization") == "Bearer secret";
    response.status = ok ? 200 : 401;
    response.set_content("{}", "application/json");
  });
  EXPECT_TRUE(AskOnce(server.url(), "secret").ok());
  const absl::Status status = AskOnce(server.url()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--key-file"));
}

TEST(HttpSource, AUnixSocketIsAnAddressToo) {
  const std::string path = testing::TempDir() + "top_source_test.sock";
  (void)std::remove(path.c_str());
  {
    const Server server(Answers("{\"unix\":1}"), path);
    EXPECT_EQ(*AskOnce("unix:" + path), "{\"unix\":1}");
  }
  (void)std::remove(path.c_str());
  EXPECT_TRUE(absl::IsUnavailable(AskOnce("unix:" + path).status()));
}

TEST(HttpSource, AddressesThatAreNoneAreRefused) {
  for (const char* url : {"", "localhost", "ftp://host", "127.0.0.1:8080"}) {
    EXPECT_EQ(AskOnce(url).status().code(), absl::StatusCode::kInvalidArgument) << url;
  }
}

TEST(HttpSource, NobodyThereIsUnavailable) {
  std::string url;
  { url = Server(Answers("{}")).url(); }
  const absl::Status status = AskOnce(url).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(url));
}

TEST(HttpSource, OtherAnswersSayTheirCode) {
  const Server server(
      [](const httplib::Request&, httplib::Response& response) { response.status = 503; });
  EXPECT_THAT(std::string(AskOnce(server.url()).status().message()), HasSubstr("503"));
}

TEST(HttpSource, AnEndlessAnswerIsCutOff) {
  const Server server([](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("application/json", [](size_t, httplib::DataSink& sink) {
      const std::string much(1 << 16, ' ');
      return sink.write(much.data(), much.size());
    });
  });
  EXPECT_THAT(std::string(AskOnce(server.url()).status().message()), HasSubstr("4 MiB"));
}

TEST(HttpSource, AServerThatHangsIsGivenUp) {
  std::atomic<bool> stop{false};
  const Server server([&](const httplib::Request&, httplib::Response&) {
    while (!stop) std::this_thread::yield();
  });
  auto source = OpenHttpSource({.url = server.url(), .wait_ns = 100'000'000});
  EXPECT_TRUE(absl::IsUnavailable((*source)->Next().status()));
  stop = true;
}

TEST(ReplaySource, GivesEveryLineAndThenNoMore) {
  auto source = OpenReplaySource(TempFile("replay_lines.jsonl", "{\"a\":1}\n\n{\"a\":2}"));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(*(*source)->Next(), "{\"a\":1}");
  EXPECT_EQ(*(*source)->Next(), "{\"a\":2}");
  EXPECT_TRUE(absl::IsOutOfRange((*source)->Next().status()));
  EXPECT_FALSE(OpenReplaySource("/nowhere/at all").ok());
}

TEST(ReadKeyFile, TakesTheFirstLineWithoutItsSpaces) {
  EXPECT_EQ(*ReadKeyFile(TempFile("key1", "  a-key \r\nanother\n")), "a-key");
  EXPECT_FALSE(ReadKeyFile(TempFile("key2", "  \nkey\n")).ok());
  EXPECT_FALSE(ReadKeyFile(TempFile("key3", std::string(5000, 'k'))).ok());
}

TEST(SnapshotFeed, ShowsTheLastGoodSnapshotAndSaysWhatIsWrongNow) {
  std::atomic<int> mode{0};
  const Server server([&](const httplib::Request&, httplib::Response& response) {
    TelemetrySnapshot s = BusySnapshot();
    s.facts.start_id = mode == 2 ? "another" : "first";
    response.set_content(mode == 1 ? "no JSON" : TelemetryJson(s), "application/json");
  });
  auto source = OpenHttpSource({.url = server.url(), .wait_ns = kWaitNs});
  const SnapshotFeed feed(*std::move(source), kSoonNs);
  Await(feed, [](const auto& state) { return state.good_count > 1; });
  mode = 1;
  const auto bad = Await(feed, [](const auto& state) { return state.bad_count > 0; });
  EXPECT_TRUE(bad.snapshot.has_value());
  EXPECT_THAT(std::string(bad.trouble.message()), HasSubstr("not JSON"));
  EXPECT_EQ(bad.restarts, 0u);
  mode = 2;
  const auto again = Await(feed, [](const auto& state) { return state.restarts > 0; });
  EXPECT_TRUE(again.trouble.ok());
  EXPECT_EQ(again.snapshot->facts.start_id, "another");
  EXPECT_EQ(again.restarts, 1u);
}

TEST(SnapshotFeed, AServerThatComesLateIsFound) {
  const std::string path = testing::TempDir() + "top_feed_test.sock";
  (void)std::remove(path.c_str());
  auto source = OpenHttpSource({.url = "unix:" + path, .wait_ns = kWaitNs});
  const SnapshotFeed feed(*std::move(source), kSoonNs);
  Await(feed, [](const auto& state) { return state.bad_count > 1; });
  const Server server(Answers(TelemetryJson(BusySnapshot())), path);
  Await(feed, [](const auto& state) { return state.good_count > 0; });
}

TEST(SnapshotFeed, EndsAtOnceWhileItWaits) {
  std::atomic<bool> stop{false};
  const Server server([&](const httplib::Request&, httplib::Response&) {
    while (!stop) std::this_thread::yield();
  });
  {
    auto source = OpenHttpSource({.url = server.url(), .wait_ns = INT64_C(3600'000'000'000)});
    const SnapshotFeed feed(*std::move(source), kSoonNs);
  }  // an hour is not waited for
  stop = true;
}

TEST(SnapshotFeed, ARecordingComesToItsEnd) {
  const std::string line = TelemetryJson(BusySnapshot());
  auto source = OpenReplaySource(TempFile("replay_feed.jsonl", line + "\n" + line + "\n"));
  const SnapshotFeed feed(*std::move(source), kSoonNs);
  const auto end = Await(feed, [](const auto& state) { return state.is_over; });
  EXPECT_EQ(end.good_count, 2u);
  EXPECT_TRUE(end.trouble.ok());
  EXPECT_EQ(end.json, line);
}

}  // namespace
}  // namespace hearth::cli
