// One engine as the daemon sees it: its socket with what waits to be sent, its hazard page, and the
// reads on their way to it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/daemon/shared_leases.h"
#include "cache/protocol/hazard_page.h"
#include "cache/protocol/messages.h"
#include "cache/protocol/packet_socket.h"
#include "cache/protocol/shared_memory.h"
#include "cache/store/ram_blocks.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

inline constexpr size_t kOutboxBytesMax = 1 << 20;  // an engine that does not read: its end
inline constexpr size_t kOutboxPacketsMax = 4096;

// Fetches are answered on the I/O thread, everything else happens on the daemon's; what both use is
// under the session's lock. Lives until nothing is on its way and nothing can be leased any more.
class EngineSession {
 public:
  EngineSession(PacketSocket socket, uint32_t number, PeerCredentials peer, int64_t since_ns);

  uint32_t number() const { return number_; }
  const PeerCredentials& peer() const { return peer_; }
  int64_t since_ns() const { return since_ns_; }
  bool greeted() const { return page_.has_value(); }
  const HazardPage& page() const { return *page_; }
  const std::string& name() const { return name_; }

  // Makes the hazard page and answers HELLO.
  absl::Status Welcome(const HelloMessage& hello, WelcomeMessage welcome, uint64_t request,
                       int arena_fd, int directory_fd);

  // The thread of the daemon only.
  absl::StatusOr<Received> Receive(PacketBuffer& into) { return socket_.Receive(into); }
  int fd() const { return socket_.fd(); }
  bool connected() const { return socket_.valid(); }
  // Readable when the process has ended; -1 when the system cannot tell.
  int process_fd() const { return process_.get(); }
  bool process_ended() const;
  // Sends nothing any more.
  void Disconnect();

  // A read on its way: one for each hazard word.
  struct Fetch {
    EngineSession* session = nullptr;
    uint32_t hazard = 0;
    ExpertKey key;
    uint64_t request = 0;
    bool waits = false;
  };
  // Marks the hazard word as waiting for a read. InvalidArgument when it waits already or does not
  // exist. The result stays valid until the read has arrived.
  absl::StatusOr<Fetch*> BeginFetch(uint32_t hazard, ExpertKey key, uint64_t request);
  // The read has ended, `block` is leased to the caller. Any thread. Whether something waits to be
  // sent now.
  bool Arrive(Fetch& fetch, const absl::StatusOr<BlockId>& block, std::span<const std::byte> bytes,
              SharedLeases& leases);
  uint32_t pending_count() const;

  // Any thread. What does not fit now is sent later; too much of it ends the session.
  void Send(std::vector<std::byte> packet);
  // Sends what waits; whether something still does.
  bool Flush();
  bool overflowed() const;

 private:
  void SendLocked(std::vector<std::byte> packet);

  const uint32_t number_;
  const PeerCredentials peer_;
  const int64_t since_ns_;
  UniqueFd process_;
  std::string name_;
  std::optional<SharedMemory> page_memory_;
  std::optional<HazardPage> page_;

  mutable std::mutex mutex_;    // guards what follows, and sending
  PacketSocket socket_;         // replaced by the daemon's thread only
  std::vector<Fetch> fetches_;  // by hazard word
  uint32_t pending_count_ = 0;
  std::deque<std::vector<std::byte>> outbox_;
  size_t outbox_bytes_ = 0;
  bool overflowed_ = false;
};

}  // namespace hearth
