// See server_state.h.
#include "runtime/serve/http/server_state.h"

#include <time.h>

#include <chrono>

#include "runtime/base/check.h"

namespace hearth {

ServerState::ServerState(HttpServerOptions options, HttpHandler& handler, Clock& clock)
    : options_(std::move(options)), handler_(handler), clock_(clock), keys_(options_.keys) {}

int64_t ServerState::UnixSeconds() const {
  if (options_.unix_seconds) return options_.unix_seconds();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

std::shared_ptr<const ApiKeys> ServerState::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

void ServerState::ReplaceKeys(std::shared_ptr<const ApiKeys> keys) {
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
}

ServerState::Admission ServerState::Admit(const PeerName& peer) {
  const HttpLimits& limits = options_.limits;
  counters_.connections_accepted.fetch_add(1);
  const std::lock_guard lock(mutex_);
  const auto found = per_peer_.find(peer.name);
  const uint32_t of_peer = found == per_peer_.end() ? 0 : found->second;
  const bool over = admitted_count_ >= limits.connections_max ||
                    of_peer >= limits.connections_per_peer_max || draining();
  if (over) counters_.connections_refused.fetch_add(1);
  if (admitted_count_ >= limits.connections_max + kRefusedMax ||
      of_peer >= limits.connections_per_peer_max + kRefusedMax)
    return Admission::kDrop;
  ++admitted_count_;
  ++per_peer_[peer.name];
  return over ? Admission::kRefuse : Admission::kAdmit;
}

void ServerState::Add(std::shared_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  const Connection* key = connection.get();
  connections_.emplace(key, std::move(connection));
}

void ServerState::Remove(const Connection* connection, const PeerName& peer) {
  std::shared_ptr<Connection> last;  // dies without the lock
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection);
  if (found != connections_.end()) {
    last = std::move(found->second);
    connections_.erase(found);
  }
  HEARTH_CHECK(admitted_count_ > 0);
  --admitted_count_;
  const auto count = per_peer_.find(peer.name);
  HEARTH_CHECK(count != per_peer_.end() && count->second > 0);
  if (--count->second == 0) per_peer_.erase(count);
  if (admitted_count_ == 0) none_left_.notify_all();
}

std::vector<std::shared_ptr<Connection>> ServerState::Connections() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(connection);
  return all;
}

bool ServerState::WaitForNoConnections(int64_t grace_ns) {
  std::unique_lock lock(mutex_);
  return none_left_.wait_for(lock, std::chrono::nanoseconds(grace_ns),
                             [&] { return admitted_count_ == 0; });
}

bool ServerState::ReserveBody(uint64_t bytes) {
  if (bytes == 0) return true;
  uint64_t held = counters_.body_bytes.load();
  do {
    if (bytes > options_.limits.bodies_bytes_max - held) return false;
  } while (!counters_.body_bytes.compare_exchange_weak(held, held + bytes));
  return true;
}

void ServerState::ReleaseBody(uint64_t bytes) { counters_.body_bytes.fetch_sub(bytes); }

HttpServerStats ServerState::Stats() const {
  const TransportCounters& c = counters_;
  HttpServerStats stats{.connections_accepted = c.connections_accepted,
                        .connections_refused = c.connections_refused,
                        .requests_running = c.requests_running,
                        .requests = c.requests,
                        .refusals = c.refusals,
                        .clients_gone = c.clients_gone,
                        .slow_readers_cut = c.slow_readers_cut,
                        .timeouts = c.timeouts,
                        .body_bytes = c.body_bytes,
                        .bytes_read = c.bytes_read,
                        .bytes_written = c.bytes_written,
                        .accept_pauses = c.accept_pauses,
                        .streams_open = c.streams_open};
  for (size_t i = 0; i < stats.responses.size(); ++i) stats.responses[i] = c.responses[i];
  const std::lock_guard lock(mutex_);
  stats.connections_open = admitted_count_;
  return stats;
}

}  // namespace hearth
