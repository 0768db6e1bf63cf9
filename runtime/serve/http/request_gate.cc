// See request_gate.h.
#include "runtime/serve/http/request_gate.h"

#include <arpa/inet.h>

#include <algorithm>

namespace hearth {
namespace {

bool IsAddress(std::string_view text, int family) {
  if (text.empty() || text.size() >= INET6_ADDRSTRLEN) return false;
  in6_addr address{};  // large enough for both families
  return inet_pton(family, std::string(text).c_str(), &address) == 1;
}

bool IsPort(std::string_view text) {
  return text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

size_t CountOf(const HttpRequest& request, std::string_view name) {
  return static_cast<size_t>(
      std::count_if(request.headers.begin(), request.headers.end(),
                    [&](const HttpHeader& h) { return EqualNoCase(h.name, name); }));
}

// The key a request presents; empty: none.
std::string_view PresentedKey(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.Header("Authorization").value_or("");
  if (EqualNoCase(authorization.substr(0, kBearer.size()), kBearer)) {
    const size_t begin = authorization.find_first_not_of(' ', kBearer.size());
    return begin == std::string_view::npos ? std::string_view() : authorization.substr(begin);
  }
  return request.Header("x-api-key").value_or("");
}

}  // namespace

bool IsAllowedHost(std::string_view host, const std::vector<std::string>& names) {
  if (!host.empty() && host.front() == '[') {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return false;
    const std::string_view rest = host.substr(end + 1);
    return (rest.empty() || (rest.front() == ':' && IsPort(rest.substr(1)))) &&
           IsAddress(host.substr(1, end - 1), AF_INET6);
  }
  const size_t colon = host.find(':');
  if (colon != std::string_view::npos && !IsPort(host.substr(colon + 1))) return false;
  const std::string_view name = host.substr(0, colon);
  if (EqualNoCase(name, "localhost") || IsAddress(name, AF_INET)) return true;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& allowed) { return EqualNoCase(name, allowed); });
}

GateDecision CheckGate(const RequestHead& head, PeerKind peer, const HttpServerOptions& options,
                       const ApiKeys* keys) {
  const HttpRequest& request = head.request;
  GateDecision decision;
  // A web page cannot reach a UNIX socket; HTTP/1.0 without Host comes from no browser.
  if (peer == PeerKind::kNetwork && !(head.host.empty() && !head.http_1_1) &&
      !IsAllowedHost(head.host, options.host_names)) {
    decision.refusal = HttpRefusal::kHostRefused;
    return decision;
  }
  if (CountOf(request, "Origin") > 0) {
    const std::string_view origin = *request.Header("Origin");
    if (CountOf(request, "Origin") > 1 || std::find(options.origins.begin(), options.origins.end(),
                                                    origin) == options.origins.end()) {
      decision.refusal = HttpRefusal::kOriginRefused;
      return decision;
    }
    decision.cors_origin = std::string(origin);
    if (request.method == "OPTIONS" && request.Header("Access-Control-Request-Method")) {
      decision.preflight = true;
      return decision;
    }
  }
  const std::vector<std::string>& keyless = options.keyless_paths;
  if (keys == nullptr || std::find(keyless.begin(), keyless.end(), request.path) != keyless.end())
    return decision;
  const std::string_view presented = PresentedKey(request);
  if (presented.empty()) {
    decision.refusal = HttpRefusal::kKeyMissing;
    return decision;
  }
  const std::optional<std::string_view> name = keys->Find(presented);
  if (name.has_value()) {
    decision.key_id = std::string(*name);
  } else {
    decision.refusal = HttpRefusal::kKeyUnknown;
  }
  return decision;
}

std::vector<HttpHeader> PreflightHeaders() {
  return {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
          {"Access-Control-Allow-Headers",
           "Authorization, Content-Type, x-api-key, "
           "anthropic-version, anthropic-beta"},
          {"Access-Control-Max-Age", "600"}};
}

}  // namespace hearth
