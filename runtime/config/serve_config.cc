#include "runtime/config/serve_config.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status WithoutEffect(std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": has no effect ", ToAbsl(why)));
}

}  // namespace

absl::Status ServeConfig::Validate(const GivenFields& given) const {
  if (pack.empty()) return absl::InvalidArgumentError("pack: is required");
  if (tls_certificate.empty() != tls_key.empty()) {
    return absl::InvalidArgumentError("tls_certificate, tls_key: one needs the other");
  }
  if (!unix_socket.empty()) {
    for (const std::string_view name : {"host", "port", "open_network"}) {
      if (given.Has(name)) return WithoutEffect(name, "with unix_socket");
    }
  }
  if (open_network && !api_keys.empty()) return WithoutEffect("open_network", "with api_keys");
  if (prefix_disk && prefix_dir.empty()) return WithoutEffect("prefix_disk", "without prefix_dir");
  if (!prefix_dir.empty() && prefix_ram_bytes == 0) {
    return WithoutEffect("prefix_dir", "with a prefix_ram_bytes of 0: states pass through RAM");
  }
  HEARTH_RETURN_IF_ERROR(cache.Validate(given));
  return compute.Validate(given);
}

}  // namespace hearth
