// Who is let in: Host against DNS rebinding, Origin against pages of the web, API keys. Pure
// functions of a request's head and the options.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/serve/http/api_keys.h"
#include "runtime/serve/http/http_error.h"
#include "runtime/serve/http/http_options.h"
#include "runtime/serve/http/request_parser.h"

namespace hearth {

struct GateDecision {
  std::optional<HttpRefusal> refusal;
  std::string cors_origin;  // an allowed Origin: the answer, refused or not, names it
  bool preflight = false;   // a browser asks whether it may: answer 204 with PreflightHeaders
  std::string key_id;
};

enum class PeerKind { kNetwork, kUnix };

// `keys` null: none are asked for.
GateDecision CheckGate(const RequestHead& head, PeerKind peer, const HttpServerOptions& options,
                       const ApiKeys* keys);

std::vector<HttpHeader> PreflightHeaders();

// "localhost", an IP address with or without brackets, or one of `names`, with or without a port.
bool IsAllowedHost(std::string_view host, const std::vector<std::string>& names);

}  // namespace hearth
