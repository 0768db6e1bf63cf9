// See service_notice.h.
#include "runtime/base/service_notice.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/base/unique_handle.h"

namespace hearth {
namespace {

constexpr int kFirstInherited = 3;  // SD_LISTEN_FDS_START

std::optional<int64_t> NumberIn(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

ServiceEnvironment ServiceEnvironmentOf(const char* const* environment) {
  ServiceEnvironment found;
  const auto take = [](std::string_view entry, std::string_view name, std::string& into) {
    if (entry.substr(0, name.size()) == name) into = std::string(entry.substr(name.size()));
  };
  for (; *environment != nullptr; ++environment) {
    take(*environment, "NOTIFY_SOCKET=", found.notify_socket);
    take(*environment, "LISTEN_PID=", found.listen_pid);
    take(*environment, "LISTEN_FDS=", found.listen_fds);
  }
  return found;
}

absl::StatusOr<ServiceNotice> ServiceNotice::Create(std::string_view address) {
  std::string own(address);
  if (own.empty()) return ServiceNotice(std::move(own));
  if (own.size() < 2 || own.size() >= sizeof(sockaddr_un::sun_path) ||
      (own[0] != '/' && own[0] != '@'))
    return absl::InvalidArgumentError(
        "NOTIFY_SOCKET: an absolute path or '@' and a name, 107 bytes at most");
  if (own[0] == '@') own[0] = '\0';
  return ServiceNotice(std::move(own));
}

absl::Status ServiceNotice::Send(std::string_view state) const {
  if (address_.empty()) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "NOTIFY_SOCKET");
  if (::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), length) < 0)
    return ErrnoStatus(errno, "NOTIFY_SOCKET");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int>> InheritedSocket(std::string_view listen_pid,
                                                   std::string_view listen_fds, int64_t own_pid) {
  if (listen_pid.empty() || listen_fds.empty()) return std::nullopt;
  const std::optional<int64_t> pid = NumberIn(listen_pid);
  const std::optional<int64_t> count = NumberIn(listen_fds);
  if (!pid.has_value() || !count.has_value())
    return absl::InvalidArgumentError("LISTEN_PID and LISTEN_FDS must be numbers");
  if (*pid != own_pid || *count == 0) return std::nullopt;
  if (*count != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("LISTEN_FDS: one socket is taken, ", *count, " were passed"));
  return kFirstInherited;
}

absl::StatusOr<ServiceStart> ServiceStartOf(const char* const* environment, int64_t own_pid) {
  const ServiceEnvironment found = ServiceEnvironmentOf(environment);
  HEARTH_ASSIGN_OR_RETURN(ServiceNotice notice, ServiceNotice::Create(found.notify_socket));
  HEARTH_ASSIGN_OR_RETURN(const std::optional<int> socket,
                          InheritedSocket(found.listen_pid, found.listen_fds, own_pid));
  return ServiceStart{.notice = std::move(notice), .inherited_socket = socket};
}

}  // namespace hearth
