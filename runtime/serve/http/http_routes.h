// A handler that is a table of methods and paths: 404, 405 with Allow, 411, 413 and 415 are decided
// from the head alone, HEAD is GET without its body, OPTIONS lists the methods.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/serve/http/http_handler.h"

namespace hearth {

struct HttpRoute {
  std::string method;  // "GET", "POST", "DELETE"
  // "/v1/models", or "/v1/models/*": whatever follows the slash, at least one character.
  std::string path;
  // What Content-Type must be for a body, parameters aside: 415 otherwise. It also keeps web pages
  // out, whose plain forms cannot send it. Empty: not looked at.
  std::string content_type;
  bool needs_body = false;  // 411 without Content-Length or chunks
  uint64_t body_bytes_max = UINT64_MAX;
  std::function<void(HttpRequest, std::shared_ptr<ResponseWriter>)> handle;
};

// Add everything before the server starts; then any number of threads may call it.
class HttpRoutes final : public HttpHandler {
 public:
  // `error_body`: as HttpServerOptions::error_body; null: the same default.
  explicit HttpRoutes(std::function<HttpErrorBody(const HttpError&)> error_body = nullptr);

  // Exact paths win over patterns, longer patterns over shorter ones.
  void Add(HttpRoute route);

  HeadDecision Screen(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override;

 private:
  const HttpRoute* Find(std::string_view method, std::string_view path) const;
  std::string AllowedMethods(std::string_view path) const;
  HttpReply Refuse(const HttpError& error) const;

  std::function<HttpErrorBody(const HttpError&)> error_body_;
  std::vector<HttpRoute> routes_;
};

}  // namespace hearth
