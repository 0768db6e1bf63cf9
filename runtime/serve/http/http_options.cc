// See http_options.h.
#include "runtime/serve/http/http_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

struct Bound {
  std::string_view field;
  uint64_t value;
  uint64_t least;
  uint64_t most;
};

absl::Status CheckBound(const Bound& bound) {
  if (bound.value >= bound.least && bound.value <= bound.most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(bound.field), ": ", bound.least, " to ",
                                                 bound.most, ", found ", bound.value));
}

absl::Status CheckLimits(const HttpLimits& l) {
  constexpr int64_t kDayNs = 86'400'000'000'000;
  for (const Bound& bound : {
           Bound{"connections_max", l.connections_max, 1, 100'000},
           Bound{"connections_per_peer_max", l.connections_per_peer_max, 1, 100'000},
           Bound{"requests_per_connection_max", l.requests_per_connection_max, 1, UINT32_MAX},
           Bound{"target_bytes_max", l.target_bytes_max, 64, 1 << 20},
           Bound{"head_bytes_max", l.head_bytes_max, 256, 16 << 20},
           Bound{"header_count_max", l.header_count_max, 8, 10'000},
           Bound{"body_bytes_max", l.body_bytes_max, 1, 1ull << 40},
           Bound{"bodies_bytes_max", l.bodies_bytes_max, l.body_bytes_max, 1ull << 40},
           Bound{"queued_bytes_max", l.queued_bytes_max, 4096, 1ull << 40},
       })
    HEARTH_RETURN_IF_ERROR(CheckBound(bound));
  for (const auto& [field, value] : {
           std::pair<std::string_view, int64_t>{"head_timeout_ns", l.head_timeout_ns},
           {"body_timeout_ns", l.body_timeout_ns},
           {"idle_timeout_ns", l.idle_timeout_ns},
           {"write_timeout_ns", l.write_timeout_ns},
           {"linger_ns", l.linger_ns},
       }) {
    if (value <= 0 || value > kDayNs)
      return absl::InvalidArgumentError(
          absl::StrCat(ToAbsl(field), ": above 0 and at most a day, found ", value));
  }
  return absl::OkStatus();
}

bool IsVisible(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

absl::Status ValidateHttpServerOptions(const HttpServerOptions& options) {
  HEARTH_RETURN_IF_ERROR(CheckLimits(options.limits));
  HEARTH_RETURN_IF_ERROR(CheckBound({"io_threads", options.io_threads, 1, 64}));
  if (options.tls.certificate_path.empty() != options.tls.key_path.empty())
    return absl::InvalidArgumentError("TLS needs both a certificate file and a key file");
  if (options.listen.fd >= 0 && !options.listen.unix_path.empty())
    return absl::InvalidArgumentError("listen: either an inherited socket or a UNIX path");
  for (const std::string& name : options.host_names) {
    if (!IsVisible(name) || name.find_first_of("/:@") != std::string::npos)
      return absl::InvalidArgumentError(
          "host_names: names without scheme and port, as 'hearth.example'");
  }
  for (const std::string& origin : options.origins) {
    const bool scheme = origin.rfind("http://", 0) == 0 || origin.rfind("https://", 0) == 0;
    if (!IsVisible(origin) || !scheme || std::count(origin.begin(), origin.end(), '/') != 2)
      return absl::InvalidArgumentError(
          "origins: scheme, host and port without a path, as 'https://chat.example'");
  }
  return absl::OkStatus();
}

}  // namespace hearth
