// The HTTP/1.1 server: listens, reads and checks requests, gives them to a handler, writes what the
// handler's writers queue. Knows nothing of models or JSON.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "runtime/serve/http/http_handler.h"
#include "runtime/serve/http/http_options.h"

namespace hearth {

// Counters since the start, and what is open now.
struct HttpServerStats {
  uint64_t connections_accepted = 0;
  uint64_t connections_refused = 0;  // over a limit
  uint64_t connections_open = 0;
  uint64_t requests_running = 0;  // given to the handler, answer not finished
  uint64_t requests = 0;          // given to the handler
  uint64_t refusals = 0;          // answered by the server itself with an error
  uint64_t clients_gone = 0;      // went away before their answer was finished
  uint64_t slow_readers_cut = 0;
  uint64_t timeouts = 0;    // requests that came too slowly
  uint64_t body_bytes = 0;  // of requests, held now
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t accept_pauses = 0;  // out of file descriptors
  uint64_t streams_open = 0;
  std::array<uint64_t, 5> responses{};  // by class: [0] 1xx ... [4] 5xx; refusals too
};

class HttpServer {
 public:
  // Binds and listens; clients are taken from Start on. InvalidArgument: an option, named.
  // FailedPrecondition: an address beyond loopback without keys, a certificate that does not load
  // or does not fit its key. AlreadyExists: the address or path is in use. The handler must outlive
  // the server (not the writers it was given).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(HttpServerOptions options,
                                                            HttpHandler& handler);
  virtual ~HttpServer() = default;  // Shutdown(0)

  // Starts the I/O threads. Once.
  virtual void Start() = 0;
  virtual uint16_t port() const = 0;  // 0 for a UNIX socket

  // Stops accepting, closes idle connections, answers new requests of the others with 503, waits up
  // to `grace_ns` for running answers, then cuts what is left (their OnGone is called) and joins
  // the I/O threads. Blocks; not to be called from a handler or a callback. Later calls return at
  // once.
  virtual void Shutdown(int64_t grace_ns) = 0;

  // Later requests are checked against these. Null is for servers that had none from the start.
  virtual void ReplaceKeys(std::shared_ptr<const ApiKeys> keys) = 0;
  virtual HttpServerStats stats() const = 0;
};

}  // namespace hearth
