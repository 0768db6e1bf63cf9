// The expert cache daemon as a library: sessions of engines over one RAM tier. PROTOCOL.md is what
// it speaks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/daemon/engine_session.h"
#include "cache/daemon/heat_state.h"
#include "cache/daemon/shared_leases.h"
#include "cache/protocol/messages.h"
#include "cache/protocol/packet_socket.h"
#include "cache/protocol/shared_memory.h"
#include "cache/store/ram_blocks.h"
#include "runtime/base/clock.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

inline constexpr uint32_t kSessionsMax = 16;  // those of engines that left with leases included

struct DaemonOptions {
  std::string socket_path;
  int inherited_fd = -1;  // a packet socket that listens there already: taken over
  PackIdentity pack;
  std::string source_hash;      // of the model: whose heat the state is
  uint64_t arena_bytes = 0;     // a multiple of 4 KiB
  std::string state_path = {};  // empty: heat is not kept
  int64_t save_every_ns = 300'000'000'000;
  bool fill = true;  // reads the hottest experts at start, while engines come already
  int64_t greeting_wait_ns = 5'000'000'000;  // a connection that does not say HELLO
};

class Daemon {
 public:
  // Makes the RAM tier over the arena.
  using BlocksMaker = std::function<absl::StatusOr<std::unique_ptr<RamBlocks>>(
      std::span<std::byte> arena, RamBlocks::HeldElsewhere held_elsewhere)>;
  // One line for people: a warning, or who came and went. Called from the thread of Run() and, for
  // the filling, from another one.
  using Talk = std::function<void(std::string_view line)>;

  // Listens, makes the arena and reads the state. AlreadyExists when another daemon serves the
  // socket. `clock` outlives the daemon.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const DaemonOptions& options,
                                                        const BlocksMaker& make_blocks,
                                                        Clock& clock, Talk talk);
  ~Daemon();

  // Serves until `stop_fd` is readable, then saves the state and takes leave of the engines.
  absl::Status Run(int stop_fd);

  RamBlocks& blocks() { return *blocks_; }  // for seeding before Run()
  StatsMessage stats() const;               // from the thread of Run()

 private:
  Daemon(const DaemonOptions& options, Clock& clock, Talk talk, ListeningSocket listening,
         SharedMemory arena, std::unique_ptr<SharedLeases> leases);

  // daemon.cc
  absl::Status LoadState();
  void SaveState();
  void StartFilling();
  void StopFilling();
  void AcceptEngines();
  void ServeTurn(EngineSession& session);
  void EndSession(EngineSession& session, std::string_view why);
  void EndSession(EngineSession& session, const ErrorMessage& error, uint64_t request);
  void Tick();
  void ForgetEnded();
  void WakeUp();

  // daemon_messages.cc: what a message does. An error ends the session.
  absl::Status Handle(EngineSession& session, std::span<const std::byte> packet);
  absl::Status HandleHello(EngineSession& session, const Frame& frame);
  absl::Status HandleFetch(EngineSession& session, const Frame& frame);
  absl::Status HandleLookAhead(const Frame& frame);
  absl::Status HandleTraffic(const Frame& frame);
  absl::Status HandleHeld(EngineSession& session, const Frame& frame);
  absl::Status HandleHeatAsk(EngineSession& session, const Frame& frame);
  absl::Status HandleSeed(const Frame& frame);
  absl::Status HandleLower(EngineSession& session, const Frame& frame);
  absl::Status CheckKey(const char* message, LayerId layer, uint32_t expert) const;
  void ShowIfThere(ExpertKey key);
  void StartFetch(EngineSession::Fetch& fetch);
  size_t KeyIndex(ExpertKey key) const {
    return size_t{key.layer.value} * options_.pack.expert_count + key.expert.value;
  }

  // What engines hold in VRAM: RAM need not keep what all of them have.
  void SetHeld(EngineSession& session, ExpertKey key, bool held);
  void ForgetHeld(EngineSession& session);
  void TellHeld(ExpertKey key);
  void TellAllHeld();

  const DaemonOptions options_;
  Clock& clock_;
  const Talk talk_;
  ListeningSocket listening_;
  SharedMemory arena_;
  const std::unique_ptr<SharedLeases> leases_;
  UniqueFd wake_;  // an eventfd: the I/O thread has left something to send

  PacketBuffer buffer_;
  std::vector<std::unique_ptr<EngineSession>> sessions_;
  uint32_t session_number_ = 0;
  uint64_t refused_count_ = 0;
  uint64_t reclaimed_lease_count_ = 0;
  int64_t saved_ns_ = 0;
  uint64_t budget_bytes_ = 0;
  struct Held {
    const EngineSession* session;
    std::vector<uint8_t> keys;
  };
  std::vector<Held> held_;            // engines that have said HELD
  std::vector<uint16_t> held_count_;  // by key: by how many engines
  std::vector<uint8_t> told_held_;    // by key: what the RAM tier was told

  // After the sessions, whose reads it ends when it goes.
  std::unique_ptr<RamBlocks> blocks_;
  std::thread filler_;
};

}  // namespace hearth
