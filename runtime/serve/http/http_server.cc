// See http_server.h. Puts the parts together; what a connection does is http_connection's.
#include "runtime/serve/http/http_server.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/serve/http/http_connection.h"
#include "runtime/serve/http/http_listener.h"
#include "runtime/serve/http/net_loop.h"
#include "runtime/serve/http/server_state.h"

namespace hearth {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

class Server final : public HttpServer {
 public:
  Server(HttpServerOptions options, HttpHandler& handler, uint16_t port,
         std::unique_ptr<NetLoop> loop)
      : port_(port),
        state_(std::make_shared<ServerState>(std::move(options), handler, clock_)),
        loop_(std::move(loop)) {}
  ~Server() override { Shutdown(0); }

  void Start() override {
    loop_->Start(
        {.accepted =
             [this](std::unique_ptr<ByteStream> stream, PeerName peer) {
               const ServerState::Admission admission = state_->Admit(peer);
               if (admission == ServerState::Admission::kDrop) return;
               MakeConnection(state_, std::move(stream), std::move(peer), admission)->Start();
             },
         .paused = [this] { state_->counters().accept_pauses.fetch_add(1); }});
  }

  uint16_t port() const override { return port_; }

  void Shutdown(int64_t grace_ns) override {
    const std::lock_guard lock(shutdown_mutex_);
    if (std::exchange(stopped_, true)) return;
    state_->BeginDrain();
    loop_->StopAccepting();
    for (const auto& connection : state_->Connections()) connection->Drain();
    bool none_left = state_->WaitForNoConnections(grace_ns);
    while (!none_left) {
      for (const auto& connection : state_->Connections()) connection->Cut();
      none_left = state_->WaitForNoConnections(kSecondNs);
    }
    loop_->Join();
  }

  void ReplaceKeys(std::shared_ptr<const ApiKeys> keys) override {
    state_->ReplaceKeys(std::move(keys));
  }
  HttpServerStats stats() const override { return state_->Stats(); }

 private:
  const uint16_t port_;
  SteadyClock clock_;
  const std::shared_ptr<ServerState> state_;
  const std::unique_ptr<NetLoop> loop_;
  std::mutex shutdown_mutex_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(HttpServerOptions options,
                                                               HttpHandler& handler) {
  HEARTH_RETURN_IF_ERROR(ValidateHttpServerOptions(options));
  HEARTH_ASSIGN_OR_RETURN(HttpListener socket, OpenHttpListener(options.listen));
  if (!socket.loopback && options.keys == nullptr && !options.allow_network_without_keys)
    return absl::FailedPreconditionError(
        "listen: the address is reachable from other machines and no API keys are set: whoever "
        "reaches it could use the model. Set a key file, or listen on 127.0.0.1, or allow it by "
        "name");
  const uint16_t port = socket.port;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<NetLoop> loop,
                          NetLoop::Create(std::move(socket), options.tls, options.io_threads));
  return std::make_unique<Server>(std::move(options), handler, port, std::move(loop));
}

}  // namespace hearth
