// What a service and the program that started it tell each other, in systemd's manner but without
// its library: readiness by datagrams (sd_notify(3)), listening sockets as inherited descriptors
// (sd_listen_fds(3)). The environment's values are arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

// What the environment says about all of this; empty: nothing.
struct ServiceEnvironment {
  std::string notify_socket;  // $NOTIFY_SOCKET
  std::string listen_pid;     // $LISTEN_PID
  std::string listen_fds;     // $LISTEN_FDS
};
// `environment`: as main() gets it, "NAME=value" strings up to a null pointer.
ServiceEnvironment ServiceEnvironmentOf(const char* const* environment);

// Thread-safe.
class ServiceNotice {
 public:
  // `address`: $NOTIFY_SOCKET, a path or, after '@', an abstract name. Empty: nobody listens, and
  // Send does nothing. InvalidArgument for anything else.
  static absl::StatusOr<ServiceNotice> Create(std::string_view address);

  // "READY=1", "STOPPING=1", "STATUS=..." or several of them, one per line. An error is the
  // system's: a service goes on without.
  absl::Status Send(std::string_view state) const;

 private:
  explicit ServiceNotice(std::string address) : address_(std::move(address)) {}
  std::string address_;  // as the system takes it: '\0' in place of '@'
};

// The one socket that was passed, from $LISTEN_PID, $LISTEN_FDS and this process's id:
// descriptor 3. Nullopt where they are empty or mean another process. InvalidArgument for what is
// not a number, or more than one socket.
absl::StatusOr<std::optional<int>> InheritedSocket(std::string_view listen_pid,
                                                   std::string_view listen_fds, int64_t own_pid);

// All of the above at once, for a main().
struct ServiceStart {
  ServiceNotice notice;
  std::optional<int> inherited_socket;
};
absl::StatusOr<ServiceStart> ServiceStartOf(const char* const* environment, int64_t own_pid);

}  // namespace hearth
