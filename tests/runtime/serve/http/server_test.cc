// The server over real sockets: many clients at once, answers from other threads, every way to
// listen, and how it stops.
#include "runtime/serve/http/http_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "runtime/serve/http/http_listener.h"
#include "runtime/serve/http/net_loop.h"
#include "runtime/serve/http/sse_writer.h"
#include "tests/runtime/serve/http/http_client.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

// A thread that answers what handlers leave with it, as an engine does.
class AnsweringThread {
 public:
  AnsweringThread()
      : thread_([this] {
          std::unique_lock lock(mutex_);
          while (true) {
            wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
            if (tasks_.empty()) return;
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
          }
        }) {}
  ~AnsweringThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void Post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

TEST(HttpServer, AnswersManyRequestsOverOneConnection) {
  TestServer server(Echo);
  Client client = server.Connect();
  for (int i = 0; i < 200; ++i) {
    const std::string body(static_cast<size_t>(i) * 97, 'x');
    const ClientReply reply = client.Ask(PostText(body));
    ASSERT_EQ(reply.status, 200);
    ASSERT_EQ(reply.body, "POST " + body);
  }
  EXPECT_EQ(server.server->stats().connections_accepted, 1u);
  client.Close();
  EXPECT_TRUE(server.NoConnectionsLeft());
}

TEST(HttpServer, ALargeBodyComesBackWhole) {
  TestServer server(Echo, {.io_threads = 2});
  std::string body(8 << 20, ' ');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 2654435761u >> 13);
  Client client = server.Connect();
  std::thread sender([&] { client.Send(PostText(body)); });
  const ClientReply reply = client.Read();
  sender.join();
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.body == "POST " + body);
}

TEST(HttpServer, SixtyFourStreamsAtOnceAreNotMixedUp) {
  AnsweringThread first, second;
  std::atomic<int> turn = 0;
  TestServer server(
      [&](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
        auto& thread = turn++ % 2 == 0 ? first : second;
        thread.Post([name = request.body, writer = std::move(writer)] {
          SseWriter events(writer, {});
          for (int i = 0; i < 50; ++i) events.Data(absl::StrCat(name, ":", i));
          events.Data("[DONE]");
          events.Finish();
        });
      },
      {.io_threads = 2});
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int c = 0; c < 64; ++c) {
    clients.emplace_back([&, c] {
      Client client = server.Connect();
      for (int round = 0; round < 3; ++round) {
        const std::string name = absl::StrCat("c", c, "r", round);
        const ClientReply reply = client.Ask(PostText(name));
        std::string expected;
        for (int i = 0; i < 50; ++i) absl::StrAppend(&expected, "data: ", name, ":", i, "\n\n");
        if (reply.body == expected + "data: [DONE]\n\n") ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 64 * 3);
  EXPECT_EQ(server.server->stats().requests, 64u * 3);
  EXPECT_TRUE(server.NoConnectionsLeft());
  EXPECT_EQ(server.server->stats().requests_running, 0u);
}

// --- Clients that go away.

enum class Leaving { kClose, kReset, kHalfClose };

class LeavingTest : public ::testing::TestWithParam<Leaving> {
 protected:
  static void Leave(Client& client) {
    if (GetParam() == Leaving::kClose) client.Close();
    if (GetParam() == Leaving::kReset) client.Reset();
    if (GetParam() == Leaving::kHalfClose) client.ShutdownSend();
  }
};

TEST_P(LeavingTest, IsToldWhileTheRequestWaitsAndNothingIsWritten) {
  std::atomic<int> gone = 0;
  std::mutex mutex;
  std::vector<std::shared_ptr<ResponseWriter>> waiting;
  TestServer server([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->OnGone([&] { ++gone; });
    const std::lock_guard lock(mutex);
    waiting.push_back(std::move(writer));
  });
  for (int i = 1; i <= 100; ++i) {
    Client client = server.Connect();
    client.Send(GetText("/"));
    ASSERT_TRUE(Eventually([&] { return server.server->stats().requests_running == 1; }));
    Leave(client);
    ASSERT_TRUE(Eventually([&] { return gone == i; }));
  }
  EXPECT_TRUE(server.NoConnectionsLeft());
  EXPECT_EQ(server.server->stats().requests_running, 0u);
  const std::lock_guard lock(mutex);
  for (const auto& writer : waiting) EXPECT_EQ(writer->Send({}), WriteResult::kGone);
}

TEST_P(LeavingTest, IsToldInMidStream) {
  AnsweringThread thread;
  std::atomic<int> gone = 0;
  TestServer server([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->OnGone([&] { ++gone; });
    thread.Post([writer = std::move(writer)] {
      writer->StartStream({});
      while (writer->Write("data: x\n\n") == WriteResult::kQueued) poll(nullptr, 0, 1);
    });
  });
  for (int i = 1; i <= 10; ++i) {
    Client client = server.Connect();
    client.Send(GetText("/"));
    ASSERT_TRUE(client.ReadSome());
    Leave(client);
    ASSERT_TRUE(Eventually([&] { return gone == i; }));
  }
  EXPECT_TRUE(server.NoConnectionsLeft());
}

INSTANTIATE_TEST_SUITE_P(Ways, LeavingTest,
                         ::testing::Values(Leaving::kClose, Leaving::kReset, Leaving::kHalfClose));

TEST(HttpServer, AWholeRequestBeforeAHalfCloseIsAnswered) {
  TestServer server(Echo);
  Client client = server.Connect();
  client.Send(PostText("nc"));
  client.ShutdownSend();
  EXPECT_EQ(client.Read().body, "POST nc");
}

TEST(HttpServer, ASlowReaderIsCutAndNeverHoldsItsWriterUp) {
  AnsweringThread thread;
  std::atomic<bool> ended = false;
  TestServer server(
      [&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
        thread.Post([&, writer = std::move(writer)] {
          writer->StartStream({});
          const std::string piece(1000, 'x');
          while (writer->Write(piece) == WriteResult::kQueued) {
          }
          ended = true;
        });
      },
      {.limits = {.queued_bytes_max = 64 << 10}});
  Client client = server.Connect();
  client.ShrinkReceiveBuffer();
  client.Send(GetText("/"));
  EXPECT_TRUE(Eventually([&] { return ended.load(); }));
  EXPECT_TRUE(server.NoConnectionsLeft());
  EXPECT_EQ(server.server->stats().slow_readers_cut, 1u);
}

TEST(HttpServer, AReaderThatStopsIsCutByTheClock) {
  TestServer server(
      [](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
        writer->Send({.body = std::string(32 << 20, 'x')});
      },
      {.limits = {.write_timeout_ns = kSecondNs / 5}});
  Client client = server.Connect();
  client.ShrinkReceiveBuffer();
  client.Send(GetText("/"));
  EXPECT_TRUE(Eventually([&] { return server.server->stats().slow_readers_cut == 1; }));
  EXPECT_TRUE(server.NoConnectionsLeft());
}

TEST(HttpServer, DrippingAndSilentClientsAreClosed) {
  TestServer server(Echo, {.limits = {.head_timeout_ns = kSecondNs / 5,
                                      .body_timeout_ns = kSecondNs / 5,
                                      .idle_timeout_ns = kSecondNs / 5}});
  Client silent = server.Connect();
  Client dripping = server.Connect();
  Client halfway = server.Connect();
  Client idle = server.Connect();
  dripping.Send("GET / HTTP/1.1\r\nHost: loc");
  halfway.Send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(idle.Ask(GetText("/")).status, 200);
  EXPECT_EQ(dripping.Read().status, 408);
  EXPECT_EQ(halfway.Read().status, 408);
  EXPECT_TRUE(silent.ReadUntilEnd());
  EXPECT_TRUE(idle.ReadUntilEnd());
  EXPECT_EQ(silent.rest() + idle.rest(), "");
  EXPECT_EQ(server.server->stats().timeouts, 2u);
}

// --- Listening.

std::string SocketPath(std::string_view name) {
  return absl::StrCat(testing::TempDir(), "hearth_http_", ::getpid(), "_",
                      absl::string_view(name.data(), name.size()));
}

TEST(HttpListen, AUnixSocketIsForItsOwnerAndLeavesNothingBehind) {
  const std::string path = SocketPath("unix");
  {
    TestServer server(
        [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
          writer->Send({.body = request.peer});
        },
        {.listen = {.unix_path = path}});
    EXPECT_EQ(server.server->port(), 0);
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    Client client = Client::Unix(path);
    EXPECT_EQ(client.Ask("GET / HTTP/1.1\r\nHost: anything\r\n\r\n").body,
              absl::StrCat("unix:", getuid()));
    FunctionHandler other(Echo);
    EXPECT_EQ(HttpServer::Create({.listen = {.unix_path = path}}, other).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(HttpListen, ASocketFileLeftBehindIsReplacedAnotherFileIsNot) {
  const std::string path = SocketPath("stale");
  {
    absl::StatusOr<HttpListener> first = OpenHttpListener({.unix_path = path});
    ASSERT_TRUE(first.ok());
    first->unix_path = UnixPath(absl::StrCat(path, ".other"));  // as if killed
    std::rename(path.c_str(), absl::StrCat(path, ".kept").c_str());
  }
  std::rename(absl::StrCat(path, ".kept").c_str(), path.c_str());
  EXPECT_TRUE(OpenHttpListener({.unix_path = path}).ok());
  const UniqueFd file(open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_EQ(OpenHttpListener({.unix_path = path}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
  EXPECT_EQ(OpenHttpListener({.unix_path = std::string(200, 'p')}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HttpListen, AnInheritedSocketIsTakenOver) {
  absl::StatusOr<HttpListener> made = OpenHttpListener({.address = "localhost"});
  ASSERT_TRUE(made.ok());
  const int inherited = dup(made->fd.get());
  TestServer server(Echo, {.listen = {.fd = inherited}});
  EXPECT_EQ(server.server->port(), made->port);
  EXPECT_EQ(server.Connect().Ask(GetText("/")).status, 200);

  FunctionHandler handler(Echo);
  const UniqueFd not_listening(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(
      HttpServer::Create({.listen = {.fd = dup(not_listening.get())}}, handler).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      HttpServer::Create({.listen = {.fd = open("/dev/null", O_RDONLY)}}, handler).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(HttpListen, AddressesBeyondLoopbackNeedKeysOrAWord) {
  FunctionHandler handler(Echo);
  const auto code = [&](HttpServerOptions options) {
    return HttpServer::Create(std::move(options), handler).status().code();
  };
  EXPECT_EQ(code({.listen = {.address = "0.0.0.0"}}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({.listen = {.address = "::"}}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({.listen = {.address = "0.0.0.0"}, .allow_network_without_keys = true}),
            absl::StatusCode::kOk);
  EXPECT_EQ(code({.listen = {.address = "127.1.2.3"}}), absl::StatusCode::kOk);
  EXPECT_EQ(code({.listen = {.address = "hearth.example"}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.listen = {.address = "127.0.0.1; rm"}}), absl::StatusCode::kInvalidArgument);
  const std::array<uint8_t, kApiKeyRandomBytes> random{};
  auto keys = std::make_shared<const ApiKeys>(*ApiKeys::Parse(MakeApiKey("a", random)->line));
  EXPECT_EQ(code({.listen = {.address = "0.0.0.0"}, .keys = keys}), absl::StatusCode::kOk);
  TestServer server(Echo);
  EXPECT_EQ(code({.listen = {.port = server.server->port()}}), absl::StatusCode::kAlreadyExists);
}

TEST(HttpServer, KeysAreAskedForAndCanBeReplaced) {
  std::array<uint8_t, kApiKeyRandomBytes> random{};
  const MadeApiKey before = *MakeApiKey("before", random);
  random[0] = 1;
  const MadeApiKey after = *MakeApiKey("after", random);
  const auto keys = [](const MadeApiKey& made) {
    return std::make_shared<const ApiKeys>(*ApiKeys::Parse(made.line));
  };
  TestServer server(
      [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
        writer->Send({.body = request.key_id});
      },
      {.keys = keys(before)});
  Client client = server.Connect();
  const auto ask = [&](const MadeApiKey& made) {
    return client.Ask(absl::StrCat("GET /v1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ",
                                   made.key, "\r\n\r\n"));
  };
  EXPECT_EQ(client.Ask(GetText("/health")).status, 200);
  const ClientReply missing = client.Ask(GetText("/v1"));
  EXPECT_EQ(missing.status, 401);
  EXPECT_THAT(missing.head, HasSubstr("WWW-Authenticate: Bearer\r\n"));
  EXPECT_EQ(ask(before).body, "before");
  EXPECT_EQ(ask(after).status, 401);
  server.server->ReplaceKeys(keys(after));
  EXPECT_EQ(ask(before).status, 401);
  EXPECT_EQ(ask(after).body, "after");
}

// --- Stopping.

TEST(HttpShutdown, FinishesWhatRunsWithinItsGrace) {
  AnsweringThread thread;
  std::atomic<bool> go_on = false;
  TestServer server([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    thread.Post([&, writer = std::move(writer)] {
      writer->StartStream({});
      writer->Write("begun");
      while (!go_on) poll(nullptr, 0, 1);
      writer->Write(" and finished");
      writer->Finish();
    });
  });
  Client client = server.Connect();
  Client idle = server.Connect();
  client.Send(GetText("/"));
  ASSERT_TRUE(client.ReadSome());
  std::thread stopping([&] { server.server->Shutdown(60 * kSecondNs); });
  EXPECT_TRUE(idle.ReadUntilEnd());
  Client late = server.Connect();
  go_on = true;
  EXPECT_EQ(client.Read().body, "begun and finished");
  EXPECT_TRUE(client.ReadUntilEnd());
  client.Close();
  stopping.join();
  EXPECT_EQ(server.server->stats().connections_open, 0u);
  EXPECT_FALSE(server.Connect().connected());
}

TEST(HttpShutdown, CutsWhatIsLeftAndTellsItsWriters) {
  std::atomic<int> gone = 0;
  std::mutex mutex;
  std::vector<std::shared_ptr<ResponseWriter>> waiting;
  {
    TestServer server([&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
      writer->OnGone([&] { ++gone; });
      const std::lock_guard lock(mutex);
      waiting.push_back(std::move(writer));
    });
    std::vector<Client> clients;
    for (int i = 0; i < 5; ++i) {
      clients.push_back(server.Connect());
      clients.back().Send(GetText("/"));
    }
    ASSERT_TRUE(Eventually([&] { return server.server->stats().requests_running == 5; }));
    server.server->Shutdown(kSecondNs / 20);
    EXPECT_EQ(gone, 5);
    for (Client& client : clients) EXPECT_EQ(client.Read().status, 0);
  }
  for (const auto& writer : waiting) {  // writers may outlive the server
    EXPECT_TRUE(writer->gone());
    EXPECT_EQ(writer->Send({}), WriteResult::kGone);
  }
}

TEST(HttpShutdown, AServerThatNeverStartedStops) {
  FunctionHandler handler(Echo);
  auto server = HttpServer::Create({}, handler);
  ASSERT_TRUE(server.ok());
  (*server)->Shutdown(kSecondNs);
}

}  // namespace
}  // namespace hearth
