// One connection of an engine to hearthd: what it has mapped, and which of its hazard words are
// free. The mapping outlives the connection, and the daemon.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/protocol/hazard_page.h"
#include "cache/protocol/messages.h"
#include "cache/protocol/packet_socket.h"
#include "cache/protocol/resident_directory.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/ids.h"

namespace hearth {

struct LinkOptions {
  std::string socket_path;
  std::string name;             // of this engine, in the daemon's messages
  int64_t connect_wait_ns = 0;  // for somebody to listen
  int64_t welcome_wait_ns = 0;  // for the answer to HELLO
};

// Taking and returning words is the owner's to lock; reading the arena is thread-safe.
class RemoteLink {
 public:
  // Unavailable: nobody answers. FailedPrecondition: another pack or version. PermissionDenied.
  static absl::StatusOr<std::unique_ptr<RemoteLink>> Connect(const PackIdentity& pack,
                                                             const LinkOptions& options,
                                                             Clock& clock);
  // Promises the daemon that nothing of this link is leased any more.
  ~RemoteLink();

  PacketSocket& socket() { return socket_; }
  const WelcomeMessage& welcome() const { return welcome_; }
  // Stays mapped while anybody has it: for whoever registers it with a device.
  const std::shared_ptr<const FileMapping>& arena() const { return arena_; }

  // A free hazard word; nothing when all are taken.
  std::optional<uint32_t> TakeWord();
  // A word whose lease has ended, or for which nothing is on its way.
  void ReturnWord(uint32_t word);
  uint32_t taken_count() const { return hazards_.count() - static_cast<uint32_t>(free_.size()); }

  // The bytes of `key`, leased by `word` from now on; nothing when they are not in the arena.
  std::optional<std::span<const std::byte>> TryHold(uint32_t word, ExpertKey key,
                                                    uint64_t blob_bytes);
  // The bytes at a place that the daemon names; nothing when they would not lie in the arena.
  std::optional<std::span<const std::byte>> BytesAt(uint32_t page, uint64_t blob_bytes) const;

 private:
  RemoteLink(PacketSocket socket, WelcomeMessage welcome, FileMapping arena, FileMapping directory,
             FileMapping page, ResidentDirectory directory_view, HazardPage hazards);

  PacketSocket socket_;
  const WelcomeMessage welcome_;
  std::shared_ptr<const FileMapping> arena_;
  FileMapping directory_memory_;
  FileMapping page_memory_;
  ResidentDirectory directory_;
  HazardPage hazards_;
  std::vector<uint32_t> free_;  // a stack of words
};

}  // namespace hearth
