// What the server costs beside a plain echo: requests and streamed events per second over loopback,
// one client thread, one thread that serves. Prints a table; ratios are to the echo with the same
// bytes in the same minute.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/unique_handle.h"
#include "runtime/serve/http/http_routes.h"
#include "runtime/serve/http/http_server.h"
#include "runtime/serve/http/sse_writer.h"
#include "tests/runtime/serve/http/http_client.h"

namespace hearth {
namespace {

constexpr int64_t kRunNs = 2'000'000'000;
constexpr size_t kEventBytes = 200;

const std::string& Request() {
  static const std::string text =
      "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\n" +
      std::string(100, ' ');
  return text;
}

// Clients that read whatever comes, all on this thread. `on_bytes(i, n)` after each read.
template <class OnBytes>
void ReadAll(std::vector<Client>& clients, const std::atomic<bool>& stop, OnBytes on_bytes) {
  const UniqueFd poller(epoll_create1(EPOLL_CLOEXEC));
  for (size_t i = 0; i < clients.size(); ++i) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    epoll_ctl(poller.get(), EPOLL_CTL_ADD, clients[i].fd(), &event);
  }
  std::vector<char> buffer(1 << 16);
  std::vector<epoll_event> events(clients.size());
  while (!stop) {
    const int n = epoll_wait(poller.get(), events.data(), static_cast<int>(events.size()), 100);
    for (int e = 0; e < n; ++e) {
      const size_t i = events[static_cast<size_t>(e)].data.u64;
      const ssize_t got = recv(clients[i].fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got > 0) on_bytes(i, static_cast<size_t>(got));
    }
  }
}

std::vector<Client> ConnectMany(uint16_t port, int count) {
  std::vector<Client> clients;
  for (int i = 0; i < count; ++i) clients.push_back(Client::Tcp(port));
  return clients;
}

// Requests per second, each client with one under way.
double RequestRate(uint16_t port, int client_count) {
  std::vector<Client> clients = ConnectMany(port, client_count);
  const ClientReply first = clients[0].Ask(Request());
  const size_t reply_bytes = first.head.size() + 2 + first.body.size();
  std::vector<size_t> missing(clients.size(), reply_bytes);
  for (Client& client : clients) client.Send(Request());
  SteadyClock clock;
  std::atomic<bool> stop = false;
  uint64_t count = 0;
  const int64_t begin_ns = clock.NowNs();
  ReadAll(clients, stop, [&](size_t i, size_t bytes) {
    missing[i] -= std::min(missing[i], bytes);
    if (missing[i] > 0) return;
    ++count;
    missing[i] = reply_bytes;
    clients[i].Send(Request());
    if (count % 64 == 0 && clock.NowNs() - begin_ns > kRunNs) stop = true;
  });
  return static_cast<double>(count) * 1e9 / static_cast<double>(clock.NowNs() - begin_ns);
}

// One thread that answers every read with the same bytes, or pushes events into every connection.
class PlainServer {
 public:
  enum class Task { kEcho, kPush };
  PlainServer(Task task, std::string reply)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        reply_(std::move(reply)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(listener_.get(), 512);
    socklen_t length = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, task] { task == Task::kEcho ? Echo() : Push(); });
  }
  ~PlainServer() {
    stop_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }

 private:
  void AcceptAll(int poller) {
    while (true) {
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) return;
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd.get()}};
      epoll_ctl(poller, EPOLL_CTL_ADD, fd.get(), &event);
      connections_.push_back(std::move(fd));
    }
  }
  void Echo() {
    const UniqueFd poller(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN, .data = {.fd = listener_.get()}};
    epoll_ctl(poller.get(), EPOLL_CTL_ADD, listener_.get(), &event);
    std::vector<epoll_event> events(128);
    std::vector<char> buffer(1 << 14);
    while (!stop_) {
      const int n = epoll_wait(poller.get(), events.data(), 128, 50);
      for (int e = 0; e < n; ++e) {
        const int fd = events[static_cast<size_t>(e)].data.fd;
        if (fd == listener_.get()) {
          AcceptAll(poller.get());
        } else if (recv(fd, buffer.data(), buffer.size(), 0) > 0) {
          (void)send(fd, reply_.data(), reply_.size(), MSG_NOSIGNAL);
        }
      }
    }
  }
  void Push() {
    const UniqueFd poller(epoll_create1(EPOLL_CLOEXEC));
    while (!stop_) {
      AcceptAll(poller.get());
      for (const UniqueFd& fd : connections_)
        (void)send(fd.get(), reply_.data(), reply_.size(), MSG_NOSIGNAL);
    }
  }
  UniqueFd listener_;
  const std::string reply_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<UniqueFd> connections_;
  std::thread thread_;
};

// Events per second into `client_count` streams. `ask`: what a client sends first.
double EventRate(uint16_t port, int client_count, std::string_view ask, size_t event_bytes) {
  std::vector<Client> clients = ConnectMany(port, client_count);
  for (Client& client : clients) client.Send(ask);
  SteadyClock clock;
  std::atomic<bool> stop = false;
  uint64_t bytes_in_all = 0;
  const int64_t begin_ns = clock.NowNs();
  uint32_t reads = 0;
  ReadAll(clients, stop, [&](size_t, size_t bytes) {
    bytes_in_all += bytes;
    if (++reads % 64 == 0 && clock.NowNs() - begin_ns > kRunNs) stop = true;
  });
  const double seconds = static_cast<double>(clock.NowNs() - begin_ns) / 1e9;
  return static_cast<double>(bytes_in_all) / static_cast<double>(event_bytes) / seconds;
}

// Writes an event to every open stream in turn, as a scheduler does window by window.
class EventSource {
 public:
  EventSource()
      : thread_([this] {
          const std::string data(kEventBytes - 8, 'x');  // "data: " and two line ends
          std::deque<SseWriter> streams;
          while (!stop_) {
            if (waiting_count_ > 0) TakeIn(streams);
            std::erase_if(streams, [&](SseWriter& stream) {
              if (stream.writer().queued_bytes() > (128 << 10)) return stream.writer().gone();
              return stream.Data(data) == WriteResult::kGone;
            });
          }
        }) {}
  ~EventSource() {
    stop_ = true;
    thread_.join();
  }
  void Add(std::shared_ptr<ResponseWriter> writer) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(std::move(writer), SseOptions{});
    ++waiting_count_;
  }

 private:
  void TakeIn(std::deque<SseWriter>& streams) {
    const std::lock_guard lock(mutex_);
    for (SseWriter& stream : waiting_) streams.push_back(std::move(stream));
    waiting_.clear();
    waiting_count_ = 0;
  }
  std::mutex mutex_;
  std::deque<SseWriter> waiting_;
  std::atomic<int> waiting_count_ = 0;  // so that the writing thread need not lock to find none
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void Compare(const char* what, int clients, double ours, double plain) {
  std::printf("%-28s %4d clients  %9.0f/s   plain %9.0f/s   ratio %.2f\n", what, clients, ours,
              plain, ours / plain);
  std::fflush(stdout);
}

void CompareRequests() {
  HttpRoutes routes;
  routes.Add({.method = "POST",
              .path = "/v1/x",
              .content_type = "application/json",
              .needs_body = true,
              .handle = [](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
                writer->Send({.body = std::string(100, 'y')});
              }});
  auto server = HttpServer::Create({.limits = {.requests_per_connection_max = UINT32_MAX}}, routes);
  (*server)->Start();
  Client probe = Client::Tcp((*server)->port());
  const ClientReply reply = probe.Ask(Request());
  PlainServer echo(PlainServer::Task::kEcho, reply.head + "\r\n" + reply.body);
  for (const int clients : {1, 4, 64}) {
    const double ours = RequestRate((*server)->port(), clients);
    Compare("requests", clients, ours, RequestRate(echo.port(), clients));
  }
}

void CompareEvents() {
  for (const int clients : {1, 8, 64}) {
    double ours = 0;
    {
      EventSource source;
      FunctionHandler handler(
          [&](HttpRequest, std::shared_ptr<ResponseWriter> writer) { source.Add(writer); });
      auto server = HttpServer::Create({}, handler);
      (*server)->Start();
      ours = EventRate((*server)->port(), clients, Request(), kEventBytes + 6);  // chunk frame
    }
    PlainServer push(PlainServer::Task::kPush, std::string(kEventBytes + 6, 'x'));
    Compare("events of 200 bytes", clients, ours,
            EventRate(push.port(), clients, "", kEventBytes + 6));
  }
}

}  // namespace
}  // namespace hearth

int main() {
  hearth::CompareRequests();
  hearth::CompareEvents();
  return 0;
}
