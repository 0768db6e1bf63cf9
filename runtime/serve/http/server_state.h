// What all connections of a server share: options, counters, keys, the list of connections and the
// memory that request bodies may hold. Any number of threads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/serve/http/http_handler.h"
#include "runtime/serve/http/http_options.h"
#include "runtime/serve/http/http_server.h"
#include "runtime/serve/http/request_gate.h"

namespace hearth {

struct PeerName {
  PeerKind kind = PeerKind::kNetwork;
  std::string name;  // as HttpRequest::peer
};

// A connection as the server ends it. From any thread; nothing happens after its end.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Start() = 0;
  virtual void Drain() = 0;  // ends when its request is answered; at once where there is none
  virtual void Cut() = 0;    // ends now
};

struct TransportCounters {
  std::atomic<uint64_t> connections_accepted = 0;
  std::atomic<uint64_t> connections_refused = 0;
  std::atomic<uint64_t> requests_running = 0;
  std::atomic<uint64_t> requests = 0;
  std::atomic<uint64_t> refusals = 0;
  std::atomic<uint64_t> clients_gone = 0;
  std::atomic<uint64_t> slow_readers_cut = 0;
  std::atomic<uint64_t> timeouts = 0;
  std::atomic<uint64_t> body_bytes = 0;
  std::atomic<uint64_t> bytes_read = 0;
  std::atomic<uint64_t> bytes_written = 0;
  std::atomic<uint64_t> accept_pauses = 0;
  std::atomic<uint64_t> streams_open = 0;
  std::array<std::atomic<uint64_t>, 5> responses{};  // as HttpServerStats::responses
};

class ServerState {
 public:
  // `options` are valid; the handler and the clock outlive every connection.
  ServerState(HttpServerOptions options, HttpHandler& handler, Clock& clock);

  const HttpServerOptions& options() const { return options_; }
  const HttpLimits& limits() const { return options_.limits; }
  HttpHandler& handler() { return handler_; }
  Clock& clock() { return clock_; }
  TransportCounters& counters() { return counters_; }
  int64_t UnixSeconds() const;

  std::shared_ptr<const ApiKeys> keys() const;
  void ReplaceKeys(std::shared_ptr<const ApiKeys> keys);

  // Whether one more connection of this peer is taken. kRefuse: its first request is answered 503,
  // for as many as kRefusedMax at once; kDrop: not even that. Counts it unless kDrop.
  enum class Admission { kAdmit, kRefuse, kDrop };
  static constexpr uint32_t kRefusedMax = 32;
  Admission Admit(const PeerName& peer);
  void Add(std::shared_ptr<Connection> connection);
  // Once per connection that Admit counted; `connection` may not have been added.
  void Remove(const Connection* connection, const PeerName& peer);
  std::vector<std::shared_ptr<Connection>> Connections() const;

  // From here on new requests are refused. True when the last connection has gone by `grace_ns`.
  void BeginDrain() { draining_.store(true); }
  bool draining() const { return draining_.load(); }
  bool WaitForNoConnections(int64_t grace_ns);

  // Memory of bodies, up to HttpLimits::bodies_bytes_max.
  bool ReserveBody(uint64_t bytes);
  void ReleaseBody(uint64_t bytes);

  HttpServerStats Stats() const;

 private:
  const HttpServerOptions options_;
  HttpHandler& handler_;
  Clock& clock_;
  TransportCounters counters_;
  std::atomic<bool> draining_ = false;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable none_left_;
  std::shared_ptr<const ApiKeys> keys_;
  uint64_t admitted_count_ = 0;
  std::unordered_map<std::string, uint32_t> per_peer_;
  std::unordered_map<const Connection*, std::shared_ptr<Connection>> connections_;
};

}  // namespace hearth
