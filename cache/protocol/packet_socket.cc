#include "cache/protocol/packet_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/protocol/messages.h"
#include "runtime/base/status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; missing from the headers of glibc 2.36
#endif

namespace hearth {
namespace {

constexpr int kBacklog = 64;
constexpr int kRetryMs = 20;  // between attempts to connect

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the path of a socket has 1 to ", sizeof(address.sun_path) - 1,
                     " bytes, this one has ", path.size(), ": choose a shorter one"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> OpenSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

// 0, or the errno of the attempt.
absl::StatusOr<int> TryConnect(int fd, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(fd, raw, sizeof(address)) == 0 ? 0 : errno;
}

struct ControlBuffer {
  alignas(cmsghdr) std::byte bytes[CMSG_SPACE(kPassedFdsMax * sizeof(int))] = {};
};

}  // namespace

int PollTimeoutMs(int64_t deadline_ns, int64_t now_ns) {
  const int64_t left_ns = std::max<int64_t>(deadline_ns - now_ns, 0);
  const int64_t left_ms = left_ns / 1'000'000 + (left_ns % 1'000'000 != 0 ? 1 : 0);
  return static_cast<int>(std::min<int64_t>(left_ms, INT_MAX));
}

absl::StatusOr<PacketSocket> PacketSocket::Connect(const std::string& path, int64_t wait_ns,
                                                   Clock& clock) {
  const int64_t deadline_ns = clock.NowNs() + wait_ns;
  for (;;) {
    HEARTH_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket());
    HEARTH_ASSIGN_OR_RETURN(const int error, TryConnect(fd.get(), path));
    if (error == 0) return PacketSocket(std::move(fd));
    const bool may_come = error == ENOENT || error == ECONNREFUSED || error == EAGAIN;
    if (!may_come) return ErrnoStatus(error, path);
    const int64_t now_ns = clock.NowNs();
    if (now_ns >= deadline_ns) {
      return absl::UnavailableError(
          absl::StrCat(path, ": no hearthd answers there: start one with --socket ", path));
    }
    ::poll(nullptr, 0, std::min(kRetryMs, PollTimeoutMs(deadline_ns, now_ns)));
  }
}

absl::StatusOr<std::pair<PacketSocket, PacketSocket>> PacketSocket::Pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  return std::pair(PacketSocket(UniqueFd(fds[0])), PacketSocket(UniqueFd(fds[1])));
}

absl::StatusOr<bool> PacketSocket::Send(std::span<const std::byte> packet,
                                        std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBuffer control;
  if (!fds.empty() && fds.size() <= kPassedFdsMax) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return false;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
      return absl::UnavailableError("the other end of the socket has gone");
    }
    return ErrnoStatus(errno, "send");
  }
}

PacketBuffer::PacketBuffer() : bytes_(kMessageBytesMax) {}

absl::StatusOr<Received> PacketSocket::Receive(PacketBuffer& into, std::vector<UniqueFd>* fds) {
  iovec part{into.bytes_.data(), into.bytes_.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBuffer control;
  if (fds != nullptr) {
    fds->clear();
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
  }
  ssize_t n = 0;
  do {
    n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  into.packet_bytes_ = static_cast<size_t>(std::max<ssize_t>(n, 0));
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Received::kNothing;
    if (errno == ECONNRESET) return Received::kClosed;
    return ErrnoStatus(errno, "receive");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      if (fds != nullptr) fds->emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a packet is longer than ", kMessageBytesMax, " bytes"));
  }
  return n == 0 ? Received::kClosed : Received::kPacket;
}

absl::StatusOr<PeerCredentials> PacketSocket::Peer() const {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return PeerCredentials{.pid = peer.pid, .uid = peer.uid};
}

UniqueFd PacketSocket::OpenPeerProcess() const {
  // Since Linux 6.5 the socket knows: no other process can have taken the number meanwhile, and it
  // works for peers in other containers.
  int process = -1;
  socklen_t length = sizeof(process);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERPIDFD, &process, &length) == 0) {
    return UniqueFd(process);
  }
  const absl::StatusOr<PeerCredentials> peer = Peer();
  if (!peer.ok() || peer->pid <= 0) return UniqueFd();
  // By number: the declaration in glibc 2.36 is not for C++.
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
}

absl::StatusOr<ListeningSocket> ListeningSocket::Listen(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const std::string lock_path = path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat(
        path, ": another hearthd serves this socket: stop it or choose another --socket"));
  }
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": exists and is no socket: choose another --socket"));
    }
    HEARTH_ASSIGN_OR_RETURN(const UniqueFd probe, OpenSocket());
    HEARTH_ASSIGN_OR_RETURN(const int error, TryConnect(probe.get(), path));
    if (error == 0 || error == EAGAIN) {
      return absl::AlreadyExistsError(absl::StrCat(
          path, ": another program serves this socket: stop it or choose another --socket"));
    }
    if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, path);
  }
  HEARTH_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket());
  // The file is made with the mode of the descriptor: nobody else can connect in between.
  if (::fchmod(fd.get(), 0600) != 0) return ErrnoStatus(errno, path);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, path);
  }
  if (::chmod(path.c_str(), 0600) != 0) return ErrnoStatus(errno, path);
  if (::listen(fd.get(), kBacklog) != 0) return ErrnoStatus(errno, path);
  ListeningSocket socket(std::move(fd), std::move(lock), path);
  if (::lstat(path.c_str(), &info) == 0) socket.inode_ = info.st_ino;
  return socket;
}

absl::StatusOr<ListeningSocket> ListeningSocket::Adopt(UniqueFd fd, const std::string& path) {
  const auto option = [&fd](int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    return ::getsockopt(fd.get(), SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
  };
  if (option(SO_DOMAIN) != AF_UNIX || option(SO_TYPE) != SOCK_SEQPACKET ||
      option(SO_ACCEPTCONN) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the inherited descriptor ", fd.get(),
                     " is no listening packet socket: a .socket unit needs "
                     "ListenSequentialPacket= and Accept=no"));
  }
  if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 ||
      ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, path);
  }
  return ListeningSocket(std::move(fd), UniqueFd(), path);
}

ListeningSocket::~ListeningSocket() {
  struct stat info;
  if (!fd_.valid() || ::lstat(path_.c_str(), &info) != 0 || info.st_ino != inode_) return;
  ::unlink(path_.c_str());  // the lock's file stays: removing it would let two hold "the" lock
}

absl::StatusOr<PacketSocket> ListeningSocket::Accept() {
  for (;;) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return PacketSocket(std::move(fd));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return PacketSocket();
    return ErrnoStatus(errno, path_);
  }
}

}  // namespace hearth
