// A client of plain sockets for tests, which can also behave badly; and a server around a handler.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/base/clock.h"
#include "runtime/base/unique_handle.h"
#include "runtime/serve/http/http_server.h"

namespace hearth {

inline constexpr int kPatienceMs = 20'000;

// True once `condition` holds; asks every millisecond.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < kPatienceMs; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, 1);
  }
  return condition();
}

struct ClientReply {
  int status = 0;  // 0: the connection ended before a whole answer
  std::string head;
  std::string body;
};

// The bytes of an answer as they come; knows Content-Length, chunks and the end of the connection.
class ReplyReader {
 public:
  explicit ReplyReader(bool head_only = false) : head_only_(head_only) {}
  // True when the answer is whole; what follows it stays in `bytes`.
  bool Take(std::string& bytes, bool ended) {
    if (reply_.head.empty()) {
      const size_t end = bytes.find("\r\n\r\n");
      if (end == std::string::npos) return false;
      reply_.head = bytes.substr(0, end + 2);
      bytes.erase(0, end + 4);
      if (reply_.head.find("HTTP/1.1 100 ") == 0) {
        reply_.head.clear();
        return Take(bytes, ended);
      }
    }
    if (!TakeBody(bytes, ended)) return false;
    reply_.status = std::stoi(reply_.head.substr(9, 3));
    return true;
  }
  ClientReply& reply() { return reply_; }
  std::string Header(std::string_view name) const {
    const size_t at = reply_.head.find("\r\n" + std::string(name) + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + 2 + name.size() + 2;
    return reply_.head.substr(begin, reply_.head.find("\r\n", begin) - begin);
  }

 private:
  bool TakeBody(std::string& bytes, bool ended) {
    if (head_only_ || reply_.head.find("HTTP/1.1 204") == 0) return true;
    if (Header("Transfer-Encoding") == "chunked") return TakeChunks(bytes);
    const std::string length = Header("Content-Length");
    if (length.empty()) {
      reply_.body += std::exchange(bytes, {});
      return ended;
    }
    const size_t missing = std::stoul(length) - reply_.body.size();
    const size_t n = std::min(missing, bytes.size());
    reply_.body.append(bytes, 0, n);
    bytes.erase(0, n);
    return n == missing;
  }
  bool TakeChunks(std::string& bytes) {
    while (true) {
      const size_t line = bytes.find("\r\n");
      if (line == std::string::npos) return false;
      const size_t count = std::stoul(bytes.substr(0, line), nullptr, 16);
      if (bytes.size() < line + 2 + count + 2) return false;
      reply_.body.append(bytes, line + 2, count);
      bytes.erase(0, line + 2 + count + 2);
      if (count == 0) return true;
    }
  }
  const bool head_only_;
  ClientReply reply_;
};

class Client {
 public:
  static Client Tcp(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return Client(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  static Client Unix(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), size_t{100}));
    return Client(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }
  // False: the other side does not take it any more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void ShutdownSend() { shutdown(fd_.get(), SHUT_WR); }
  void Close() { fd_ = UniqueFd(); }
  // The peer sees a reset, as from a killed machine.
  void Reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Close();
  }
  void ShrinkReceiveBuffer() {
    const int bytes = 4096;
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }

  // More bytes into `rest()`; false: the end, or nothing for too long.
  bool ReadSome() {
    pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPatienceMs) != 1) return false;
    char buffer[16'384];
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    rest_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  ClientReply Read(bool head_only = false) {
    ReplyReader reader(head_only);
    while (!reader.Take(rest_, false)) {
      if (ReadSome()) continue;
      reader.Take(rest_, true);
      break;
    }
    return reader.reply();
  }
  ClientReply Ask(std::string_view request) {
    Send(request);
    return Read();
  }
  bool ReadUntilEnd() {
    while (ReadSome()) {
    }
    pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return poll(&ready, 1, 0) == 1;  // an end, not an empty wait
  }
  std::string& rest() { return rest_; }

 private:
  Client(int family, const sockaddr* address, socklen_t length)
      : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connected_ = connect(fd_.get(), address, length) == 0;
  }
  UniqueFd fd_;
  bool connected_ = false;
  std::string rest_;
};

// What a handler does, as a function.
class FunctionHandler final : public HttpHandler {
 public:
  using Function = std::function<void(HttpRequest, std::shared_ptr<ResponseWriter>)>;
  explicit FunctionHandler(Function function) : function_(std::move(function)) {}
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override {
    function_(std::move(request), std::move(writer));
  }

 private:
  const Function function_;
};

// A started server; stops at the end of its scope.
class TestServer {
 public:
  explicit TestServer(FunctionHandler::Function function, HttpServerOptions options = {})
      : handler_(std::move(function)) {
    auto made = HttpServer::Create(std::move(options), handler_);
    EXPECT_TRUE(made.ok()) << made.status();
    server = *std::move(made);
    server->Start();
  }
  Client Connect() const { return Client::Tcp(server->port()); }
  bool NoConnectionsLeft() const {
    return Eventually([&] { return server->stats().connections_open == 0; });
  }

 private:
  FunctionHandler handler_;  // outlives the server

 public:
  std::unique_ptr<HttpServer> server;
};

inline std::string GetText(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}
inline std::string PostText(std::string_view body, std::string_view headers = "") {
  return "POST / HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

inline void Echo(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  writer->Send(
      {.content_type = "text/plain", .body = request.method + " " + request.body, .headers = {}});
}

}  // namespace hearth
