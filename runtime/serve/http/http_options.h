// Everything that bounds and guards the server, listed once, with the reasons of the defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/serve/http/api_keys.h"
#include "runtime/serve/http/http_message.h"

namespace hearth {

struct HttpLimits {
  uint32_t connections_max = 512;  // file descriptors: two thirds of the usual 1024 at most
  uint32_t connections_per_peer_max = 256;  // one address; UNIX peers count by user id
  uint32_t requests_per_connection_max = 10'000;
  uint32_t target_bytes_max = 8'192;         // path and query: 414 beyond
  uint32_t head_bytes_max = 32'768;          // request line and headers: 431 beyond
  uint32_t header_count_max = 100;           // 431 beyond
  uint64_t body_bytes_max = 32ull << 20;     // a prompt of 256 K tokens is about 1.5 MB: 413 beyond
  uint64_t bodies_bytes_max = 256ull << 20;  // of all requests being read or waiting: 503 beyond
  uint64_t queued_bytes_max = 1ull << 20;    // of a stream that its reader has not taken; about a
                                             // minute of tokens as events
  int64_t head_timeout_ns = 10'000'000'000;  // from the first byte to the end of the head: 408
  int64_t body_timeout_ns = 60'000'000'000;  // from the end of the head to the end of the body: 408
  int64_t idle_timeout_ns = 75'000'000'000;  // between requests; above the usual 60 s of proxies
  int64_t write_timeout_ns = 30'000'000'000;  // a reader that takes nothing for that long is cut
  int64_t linger_ns = 2'000'000'000;  // after a refusal, what the client still sends is read and
                                      // dropped for that long, so that it can read the refusal
};

// Where to listen: exactly one of address, unix_path and fd.
struct ListenOptions {
  std::string address = "127.0.0.1";  // an IPv4 or IPv6 address, or "localhost" (127.0.0.1)
  uint16_t port = 0;                  // 0: the system chooses; see HttpServer::port()
  std::string unix_path;  // a UNIX stream socket, made with mode 0600; not empty: address
                          // and port do not count
  int fd = -1;  // an inherited listening socket, TCP or UNIX (socket activation); the server takes
                // it over and closes it
};

struct TlsOptions {
  std::string certificate_path;  // PEM, with its chain; empty: no TLS
  std::string key_path;          // PEM, without a passphrase
};

struct HttpServerOptions {
  ListenOptions listen;
  TlsOptions tls;
  HttpLimits limits;
  uint32_t io_threads = 1;  // one core moves about 30,000 small requests a second
  // Null: nobody is asked for a key, and only loopback addresses and UNIX sockets are listened on.
  std::shared_ptr<const ApiKeys> keys;
  bool allow_network_without_keys = false;               // to be said, never implied
  std::vector<std::string> keyless_paths = {"/health"};  // exact paths that need no key
  // Names that the Host header may hold besides "localhost", any IP address written out and, on a
  // UNIX socket, anything: a name that resolves to us by someone else's DNS is refused (403).
  std::vector<std::string> host_names;
  // Values of Origin that are let in, as "https://chat.example"; they get CORS headers. A request
  // with any other Origin is refused (403): pages of the web have no business here.
  std::vector<std::string> origins;
  // Makes the bodies of the server's own refusals. Null: {"error":{"code":...,"message":...}}.
  std::function<HttpErrorBody(const HttpError&)> error_body;
  std::function<int64_t()> unix_seconds;  // for the Date header; null: the system's clock
};

// InvalidArgument names the field, what is accepted and what was found. Creation checks this too.
absl::Status ValidateHttpServerOptions(const HttpServerOptions& options);

}  // namespace hearth
