// A connection's bytes without a socket, and a handler that keeps what it is given: tests and the
// fuzzer play the client, the clock and the answering threads one step at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/serve/http/byte_stream.h"
#include "runtime/serve/http/http_connection.h"
#include "runtime/serve/http/server_state.h"

namespace hearth {

// The client's end of a FakeStream and its event loop.
struct FakeWire {
  explicit FakeWire(FakeClock& wire_clock) : clock(wire_clock) {}

  void Send(std::string_view bytes) {
    input.append(bytes);
    Run();
  }
  void End(StreamEnd how = StreamEnd::kEnd) {
    end = how;
    Run();
  }
  void Advance(int64_t ns) {
    clock.Advance(ns);
    Run();
  }
  // Until nothing more happens by itself.
  void Run() {
    while (Step()) {
    }
  }
  std::string TakeOutput() { return std::exchange(output, {}); }

  FakeClock& clock;
  std::string input;  // sent by the client, not read yet
  StreamEnd end = StreamEnd::kNone;
  size_t read_bytes_max = SIZE_MAX;  // of one read
  std::string output;                // taken by the client
  uint64_t room_bytes = UINT64_MAX;  // that the client will take
  bool send_shut = false;            // the server says no more
  bool closed = false;
  bool start_fails = false;

  std::deque<std::function<void()>> tasks;
  StreamUserRef reader, writer, timer;
  std::span<char> read_into;
  std::string_view write_from;
  int64_t timer_at_ns = 0;

 private:
  bool Step() {
    if (!tasks.empty()) {
      const std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      task();
      return true;
    }
    if (closed) return false;
    if (timer != nullptr && clock.NowNs() >= timer_at_ns) {
      std::exchange(timer, nullptr)->OnTimer();
      return true;
    }
    if (writer != nullptr && room_bytes > 0) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(write_from.size(), room_bytes));
      output.append(write_from.substr(0, n));
      room_bytes -= n;
      std::exchange(writer, nullptr)->OnWritten(n, true);
      return true;
    }
    if (reader == nullptr || (input.empty() && end == StreamEnd::kNone)) return false;
    const size_t n = std::min({input.size(), read_into.size(), read_bytes_max});
    std::copy_n(input.begin(), n, read_into.begin());
    input.erase(0, n);
    const StreamEnd said = input.empty() ? end : StreamEnd::kNone;
    std::exchange(reader, nullptr)->OnRead(n, said);
    return true;
  }
};

class FakeStream final : public ByteStream {
 public:
  explicit FakeStream(std::shared_ptr<FakeWire> wire) : wire_(std::move(wire)) {}
  void Post(std::function<void()> task) override { wire_->tasks.push_back(std::move(task)); }
  void Start(StreamUserRef user) override {
    Post([user, fails = wire_->start_fails] { user->OnReady(!fails); });
  }
  void ReadSome(StreamUserRef user, std::span<char> into) override {
    wire_->reader = std::move(user);
    wire_->read_into = into;
  }
  void WriteSome(StreamUserRef user, std::string_view bytes) override {
    wire_->writer = std::move(user);
    wire_->write_from = bytes;
  }
  void SetTimer(StreamUserRef user, int64_t after_ns) override {
    wire_->timer = std::move(user);
    wire_->timer_at_ns = wire_->clock.NowNs() + after_ns;
  }
  void ShutdownSend(StreamUserRef) override { wire_->send_shut = true; }
  void Close() override {
    wire_->closed = true;
    // As real streams do: whoever waits is let go later.
    Post([reader = std::move(wire_->reader), writer = std::move(wire_->writer),
          timer = std::move(wire_->timer)] {});
  }

 private:
  const std::shared_ptr<FakeWire> wire_;
};

// Keeps every request and its writer until the test answers.
class KeepingHandler final : public HttpHandler {
 public:
  struct Kept {
    HttpRequest request;
    std::shared_ptr<ResponseWriter> writer;
  };
  HeadDecision Screen(const HttpRequest& head) override {
    return screen ? screen(head) : HeadDecision{};
  }
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override {
    if (answer) return answer(request, *writer);
    kept.push_back({std::move(request), std::move(writer)});
  }
  std::function<HeadDecision(const HttpRequest&)> screen;
  std::function<void(const HttpRequest&, ResponseWriter&)> answer;  // at once; null: keeps
  std::vector<Kept> kept;
};

// A server's state and any number of fake connections to it.
class FakeServer {
 public:
  explicit FakeServer(HttpServerOptions options = {})
      : state(std::make_shared<ServerState>(WithFixedDate(std::move(options)), handler, clock)) {}
  ~FakeServer() {
    for (const auto& connection : state->Connections()) connection->Cut();
    for (const auto& wire : wires) wire->Run();
  }

  std::shared_ptr<FakeWire> Connect(PeerName peer = {.kind = PeerKind::kNetwork,
                                                     .name = "127.0.0.1"}) {
    auto wire = std::make_shared<FakeWire>(clock);
    wires.push_back(wire);
    const ServerState::Admission admission = state->Admit(peer);
    if (admission == ServerState::Admission::kDrop) {
      wire->closed = true;
      return wire;
    }
    MakeConnection(state, std::make_unique<FakeStream>(wire), std::move(peer), admission)->Start();
    wire->Run();
    return wire;
  }

  FakeClock clock;
  KeepingHandler handler;
  std::shared_ptr<ServerState> state;
  std::vector<std::shared_ptr<FakeWire>> wires;

 private:
  static HttpServerOptions WithFixedDate(HttpServerOptions options) {
    options.unix_seconds = [] { return int64_t{784'111'777}; };
    return options;
  }
};

}  // namespace hearth
