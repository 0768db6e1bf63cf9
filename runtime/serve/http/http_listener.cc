// See http_listener.h.
#include "runtime/serve/http/http_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr int kBacklog = 1024;

absl::Status BindError(int error_number, const std::string& where) {
  if (error_number == EADDRINUSE)
    return absl::AlreadyExistsError(
        absl::StrCat("listen on ", where, ": in use; stop what listens there or choose another"));
  return ErrnoStatus(error_number, absl::StrCat("listen on ", where));
}

bool IsLoopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_UNIX) return true;
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return (ntohl(in.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.ss_family != AF_INET6) return false;
  sockaddr_in6 in6{};
  std::memcpy(&in6, &address, sizeof in6);
  return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) ||
         (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) && in6.sin6_addr.s6_addr[12] == 127);
}

uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return ntohs(in.sin_port);
  }
  if (address.ss_family != AF_INET6) return 0;
  sockaddr_in6 in6{};
  std::memcpy(&in6, &address, sizeof in6);
  return ntohs(in6.sin6_port);
}

// Fills in what the socket itself says.
absl::StatusOr<HttpListener> Describe(UniqueFd fd, UnixPath path) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return ErrnoStatus(errno, "listening socket");
  if (fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0 ||
      fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0)
    return ErrnoStatus(errno, "listening socket");
  return HttpListener{.fd = std::move(fd),
                      .family = address.ss_family,
                      .port = PortOf(address),
                      .loopback = IsLoopback(address),
                      .unix_path = std::move(path)};
}

absl::StatusOr<HttpListener> ListenInherited(int descriptor) {
  UniqueFd fd(descriptor);
  int value = 0;
  socklen_t length = sizeof value;
  const bool listens =
      getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value == 1;
  const bool stream =
      getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_STREAM;
  if (!listens || !stream)
    return absl::InvalidArgumentError(absl::StrCat(
        "listen: descriptor ", descriptor,
        " is not a listening stream socket; a .socket unit needs ListenStream= and Accept=no"));
  return Describe(std::move(fd), UnixPath());
}

// Whether somebody answers at the path.
bool IsAlive(const sockaddr_un& address) {
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EAGAIN || errno == EINPROGRESS;
}

absl::StatusOr<HttpListener> ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return absl::InvalidArgumentError(
        absl::StrCat("listen on ", path, ": a UNIX socket's path has ", sizeof address.sun_path - 1,
                     " bytes at most, found ", path.size()));
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode))
      return absl::AlreadyExistsError(
          absl::StrCat("listen on ", path, ": a file of another kind is there"));
    if (IsAlive(address)) return BindError(EADDRINUSE, path);
    unlink(path.c_str());  // left behind by a server that was killed
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return BindError(errno, path);
  // The mode of the descriptor becomes the path's at bind: nobody else can connect in between.
  if (fchmod(fd.get(), 0600) != 0) return BindError(errno, path);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return BindError(errno, path);
  UnixPath owned(path);
  if (chmod(path.c_str(), 0600) != 0 || listen(fd.get(), kBacklog) != 0)
    return BindError(errno, path);
  return Describe(std::move(fd), std::move(owned));
}

absl::StatusOr<HttpListener> ListenAddress(const std::string& text, uint16_t port) {
  const std::string& literal = text == "localhost" ? std::string("127.0.0.1") : text;
  sockaddr_storage address{};
  socklen_t length = 0;
  sockaddr_in in{};
  sockaddr_in6 in6{};
  if (inet_pton(AF_INET, literal.c_str(), &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    length = sizeof in;
    std::memcpy(&address, &in, length);
  } else if (inet_pton(AF_INET6, literal.c_str(), &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    length = sizeof in6;
    std::memcpy(&address, &in6, length);
  } else {
    return absl::InvalidArgumentError(
        "listen address: an IPv4 or IPv6 address or 'localhost', as 127.0.0.1 or ::1");
  }
  const std::string where = absl::StrCat(literal, " port ", port);
  UniqueFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return BindError(errno, where);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), kBacklog) != 0)
    return BindError(errno, where);
  return Describe(std::move(fd), UnixPath());
}

}  // namespace

UnixPath::UnixPath(UnixPath&& other) noexcept : path_(std::exchange(other.path_, {})) {}
UnixPath& UnixPath::operator=(UnixPath&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}
UnixPath::~UnixPath() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::StatusOr<HttpListener> OpenHttpListener(const ListenOptions& options) {
  if (options.fd >= 0) return ListenInherited(options.fd);
  if (!options.unix_path.empty()) return ListenUnix(options.unix_path);
  return ListenAddress(options.address, options.port);
}

}  // namespace hearth
