// The event loop: I/O threads, the accept loop and the streams of what was accepted, plain or TLS.
// The one place that knows Asio and OpenSSL's connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "runtime/serve/http/byte_stream.h"
#include "runtime/serve/http/http_listener.h"
#include "runtime/serve/http/http_options.h"
#include "runtime/serve/http/server_state.h"

namespace hearth {

class NetLoop {
 public:
  struct Events {
    // A client, on an I/O thread, one call at a time. Dropping the stream closes the connection.
    std::function<void(std::unique_ptr<ByteStream>, PeerName)> accepted;
    // No file descriptor or memory was left: accepting rests for a tenth of a second.
    std::function<void()> paused;
  };

  // FailedPrecondition: a certificate or key that does not load or fit, with OpenSSL's reason.
  static absl::StatusOr<std::unique_ptr<NetLoop>> Create(HttpListener socket, const TlsOptions& tls,
                                                         uint32_t thread_count);
  virtual ~NetLoop() = default;  // StopAccepting and Join must have been called if Start was

  virtual void Start(Events events) = 0;
  // After it returns `accepted` is not called any more. Not from an I/O thread.
  virtual void StopAccepting() = 0;
  // Waits until every stream has been closed and its last call has ended.
  virtual void Join() = 0;
};

}  // namespace hearth
