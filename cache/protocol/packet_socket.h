// Packets over a UNIX socket (SOCK_SEQPACKET: a packet arrives whole or not at all), with
// descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/clock.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

inline constexpr size_t kPassedFdsMax = 4;

// Who is at the other end, as the kernel recorded it when the connection was made.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

enum class Received { kPacket, kNothing, kClosed };

// Room for one packet: receiving allocates nothing.
class PacketBuffer {
 public:
  PacketBuffer();
  std::span<const std::byte> packet() const { return std::span(bytes_).first(packet_bytes_); }

 private:
  friend class PacketSocket;
  std::vector<std::byte> bytes_;
  size_t packet_bytes_ = 0;
};

// Never blocks. Not thread-safe, but one thread may send while another receives.
class PacketSocket {
 public:
  PacketSocket() = default;
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Tries until somebody listens at `path` or `wait_ns` have passed: Unavailable.
  static absl::StatusOr<PacketSocket> Connect(const std::string& path, int64_t wait_ns,
                                              Clock& clock);
  // Two connected ends, for tests.
  static absl::StatusOr<std::pair<PacketSocket, PacketSocket>> Pair();

  // False: no room now, nothing was sent. Unavailable: the other end has gone.
  absl::StatusOr<bool> Send(std::span<const std::byte> packet, std::span<const int> fds = {});
  // Replaces both. A packet above kMessageBytesMax is InvalidArgument; descriptors are closed
  // unless `fds` is given.
  absl::StatusOr<Received> Receive(PacketBuffer& into, std::vector<UniqueFd>* fds = nullptr);
  absl::StatusOr<PeerCredentials> Peer() const;
  // A descriptor of the peer's process that is readable once it has ended; invalid when the system
  // cannot make one (before Linux 5.3).
  UniqueFd OpenPeerProcess() const;
  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void Close() { fd_ = UniqueFd(); }

 private:
  UniqueFd fd_;
};

// A socket file that engines connect to: mode 0600, removed on destruction if it is still ours.
class ListeningSocket {
 public:
  // AlreadyExists when somebody answers there already; a file that nobody serves is replaced.
  // FailedPrecondition when the file is no socket. Two that start at once: one of them wins, by a
  // lock on "<path>.lock".
  static absl::StatusOr<ListeningSocket> Listen(const std::string& path);
  // One that somebody else opened, at `path` as far as one knows, and removes himself.
  // InvalidArgument when it is no listening packet socket.
  static absl::StatusOr<ListeningSocket> Adopt(UniqueFd fd, const std::string& path);
  ListeningSocket(ListeningSocket&& other) noexcept = default;
  ~ListeningSocket();

  // The next connection, without waiting; an invalid socket when there is none.
  absl::StatusOr<PacketSocket> Accept();
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  ListeningSocket(UniqueFd fd, UniqueFd lock, std::string path)
      : fd_(std::move(fd)), lock_(std::move(lock)), path_(std::move(path)) {}
  UniqueFd fd_;
  UniqueFd lock_;
  std::string path_;
  uint64_t inode_ = 0;
};

// The smaller of what is left until `deadline_ns` and INT_MAX, in milliseconds, rounded up: for
// poll().
int PollTimeoutMs(int64_t deadline_ns, int64_t now_ns);

}  // namespace hearth
