// See http_routes.h.
#include "runtime/serve/http/http_routes.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/serve/http/http_error.h"

namespace hearth {
namespace {

// How well a route's path fits: 0 not at all, else longer is better and exact is best.
size_t Fit(std::string_view pattern, std::string_view path) {
  if (pattern == path) return SIZE_MAX;
  if (pattern.size() < 2 || pattern.substr(pattern.size() - 2) != "/*") return 0;
  const std::string_view prefix = pattern.substr(0, pattern.size() - 1);
  return path.size() > prefix.size() && path.substr(0, prefix.size()) == prefix ? prefix.size() : 0;
}

bool IsMediaType(std::string_view header, std::string_view expected) {
  std::string_view type = header.substr(0, header.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return EqualNoCase(type, expected);
}

bool HasBody(const HttpRequest& head) {
  return head.Header("Transfer-Encoding").has_value() ||
         head.Header("Content-Length").value_or("0").find_first_not_of('0') !=
             std::string_view::npos;
}

}  // namespace

HttpRoutes::HttpRoutes(std::function<HttpErrorBody(const HttpError&)> error_body)
    : error_body_(std::move(error_body)) {}

void HttpRoutes::Add(HttpRoute route) {
  HEARTH_CHECK(!route.path.empty() && route.path.front() == '/');
  HEARTH_CHECK(route.handle != nullptr);
  routes_.push_back(std::move(route));
}

const HttpRoute* HttpRoutes::Find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  const HttpRoute* best = nullptr;
  size_t best_fit = 0;
  for (const HttpRoute& route : routes_) {
    const size_t fit = route.method == wanted ? Fit(route.path, path) : 0;
    if (fit <= best_fit) continue;
    best = &route;
    best_fit = fit;
  }
  return best;
}

std::string HttpRoutes::AllowedMethods(std::string_view path) const {
  std::vector<std::string> methods;
  for (const HttpRoute& route : routes_) {
    if (path != "*" && Fit(route.path, path) == 0) continue;
    methods.push_back(route.method);
    if (route.method == "GET") methods.push_back("HEAD");
  }
  if (methods.empty()) return {};
  methods.push_back("OPTIONS");
  std::sort(methods.begin(), methods.end());
  methods.erase(std::unique(methods.begin(), methods.end()), methods.end());
  std::string joined;
  for (const std::string& method : methods) joined += (joined.empty() ? "" : ", ") + method;
  return joined;
}

HttpReply HttpRoutes::Refuse(const HttpError& error) const { return ReplyOf(error, error_body_); }

HeadDecision HttpRoutes::Screen(const HttpRequest& head) {
  const HttpRoute* route = Find(head.method, head.path);
  if (route == nullptr) {
    std::string allowed = AllowedMethods(head.path);
    if (allowed.empty()) return {.refusal = Refuse(ErrorOf(HttpRefusal::kNotFound, head.path))};
    HttpReply reply{.status = 204, .content_type = {}};
    if (head.method != "OPTIONS")
      reply = Refuse(ErrorOf(HttpRefusal::kMethodNotAllowed, head.path));
    reply.headers.push_back({"Allow", std::move(allowed)});
    return {.refusal = std::move(reply)};
  }
  if (route->needs_body && !HasBody(head))
    return {.refusal = Refuse(ErrorOf(HttpRefusal::kLengthRequired, head.path))};
  if (!route->content_type.empty() && HasBody(head) &&
      !IsMediaType(head.Header("Content-Type").value_or(""), route->content_type))
    return {.refusal = Refuse(ErrorOf(HttpRefusal::kContentType, head.path))};
  return {.body_bytes_max = route->body_bytes_max};
}

void HttpRoutes::Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const HttpRoute* route = Find(request.method, request.path);
  HEARTH_CHECK(route != nullptr);  // Screen let it through
  route->handle(std::move(request), std::move(writer));
}

}  // namespace hearth
