// A socket that listens, however it came about: an address, a UNIX path, or a descriptor that
// someone else opened.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/unique_handle.h"
#include "runtime/serve/http/http_options.h"

namespace hearth {

// Removes a UNIX socket's path when the server ends.
class UnixPath {
 public:
  explicit UnixPath(std::string path = {}) : path_(std::move(path)) {}
  UnixPath(UnixPath&& other) noexcept;
  UnixPath& operator=(UnixPath&& other) noexcept;
  ~UnixPath();

 private:
  std::string path_;
};

struct HttpListener {
  UniqueFd fd;  // does not block
  int family = 0;
  uint16_t port = 0;      // 0 for UNIX
  bool loopback = false;  // reached from this machine only; UNIX sockets too
  UnixPath unix_path;
};

// InvalidArgument: not an address, or a descriptor that is no listening stream socket.
// AlreadyExists: somebody listens there. A socket file that nobody listens on is replaced.
absl::StatusOr<HttpListener> OpenHttpListener(const ListenOptions& options);

}  // namespace hearth
