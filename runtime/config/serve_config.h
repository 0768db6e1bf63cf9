// What `hearth serve` serves, to whom, within which bounds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/units.h"
#include "runtime/config/cache_config.h"
#include "runtime/config/compute_config.h"
#include "runtime/config/field.h"

namespace hearth {

enum class LogChoice { kError, kInfo, kDebug };

constexpr std::array<EnumEntry<LogChoice>, 3> EnumEntriesOf(LogChoice) {
  return {{{LogChoice::kError, "error"}, {LogChoice::kInfo, "info"}, {LogChoice::kDebug, "debug"}}};
}

struct ServeConfig {
  std::string pack;
  std::string host = "127.0.0.1";
  uint32_t port = 8080;
  std::string unix_socket;
  std::string model_name;
  std::string chat_template;
  uint32_t context_tokens = 32'768;  // 24 KiB of VRAM each in bf16 for the full model
  uint32_t sequences = 4;            // of which each takes 108 MiB of VRAM besides
  uint32_t spec = 3;
  uint32_t queue = 256;
  uint32_t timeout_sec = 0;
  uint32_t drain_sec = 30;
  LogChoice log = LogChoice::kInfo;

  std::string api_keys;
  bool open_network = false;
  std::string tls_certificate;
  std::string tls_key;
  std::vector<std::string> allow_host;
  std::vector<std::string> allow_origin;
  uint32_t connections = 512;  // two thirds of the usual 1,024 descriptors at most
  uint64_t body_bytes_max = 16_MiB;

  uint64_t prefix_ram_bytes = 512_MiB;
  std::string prefix_dir;
  std::optional<uint64_t> prefix_disk;

  CacheConfig cache;
  ComputeConfig compute;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
    v("host", host, "to listen on; beyond this machine: with --api-keys", {.metavar = "ADDRESS"});
    v("port", port, "0 = the system chooses", {.minimum = 0, .maximum = 65'535});
    v("unix_socket", unix_socket, "listen here instead, for this user only", {.metavar = "PATH"});
    v("model_name", model_name, "as clients call it; none: the folder's name", {.metavar = "NAME"});
    v("chat_template", chat_template, "Jinja template in place of the pack's", {.metavar = "FILE"});
    v("context_tokens", context_tokens, "prompt and answer, 0 = what the model can",
      {.minimum = 0, .maximum = 1 << 20});
    v("sequences", sequences, "requests computed at once", {.minimum = 1, .maximum = 256});
    v("spec", spec, "most tokens drafted per window, 0 = off", {.minimum = 0, .maximum = 8});
    v("queue", queue, "requests that may wait", {.minimum = 1, .maximum = 65'536});
    v("timeout_sec", timeout_sec, "most time for a request, 0 = any",
      {.minimum = 0, .maximum = 86'400});
    v("drain_sec", drain_sec, "at SIGTERM, time for what is being answered",
      {.minimum = 0, .maximum = 3'600});
    v("log", log, "info: a line per request; read anew at SIGHUP");
    v.Group("http");
    v("api_keys", api_keys, "who may ask: lines of `hearth key make`", {.metavar = "FILE"});
    v("open_network", open_network, "listen beyond this machine without keys");
    v("tls_certificate", tls_certificate, "PEM with its chain; with tls_key, HTTPS only",
      {.metavar = "FILE"});
    v("tls_key", tls_key, "PEM", {.metavar = "FILE"});
    v("allow_host", allow_host, "a name clients may use besides localhost and addresses",
      {.metavar = "NAME"});
    v("allow_origin", allow_origin, "a web page's origin, as https://chat.example",
      {.metavar = "URL"});
    v("connections", connections, "clients at once", {.minimum = 1, .maximum = 65'536});
    v("body_bytes_max", body_bytes_max, "largest request");
    v.Group("prefix");
    v("prefix_ram_bytes", prefix_ram_bytes, "for states of prompts read before; 0B = none");
    v("prefix_dir", prefix_dir, "keep such states here, for the next start too",
      {.metavar = "DIR"});
    v("prefix_disk", prefix_disk, "the most they may take there; none: 16GiB", {.metavar = "SIZE"});
    cache.Visit(v);
    compute.Visit(v);
  }

  absl::Status Validate(const GivenFields& given) const;
};

}  // namespace hearth
