// See http_error.h. Codes are part of the interface: clients may branch on them.
#include "runtime/serve/http/http_error.h"

#include <array>

#include "runtime/base/check.h"

namespace hearth {
namespace {

struct RefusalText {
  HttpRefusal refusal;
  int status;
  std::string_view code;
  std::string_view message;
};

constexpr std::array kTexts = {
    RefusalText{HttpRefusal::kBadRequest, 400, "bad_request",
                "The request is not well-formed HTTP/1.1."},
    RefusalText{HttpRefusal::kBadTarget, 400, "bad_target",
                "The request target must begin with '/' and hold visible ASCII characters and "
                "correct percent escapes only."},
    RefusalText{HttpRefusal::kBadHost, 400, "bad_host",
                "The request must have exactly one Host header."},
    RefusalText{HttpRefusal::kAmbiguousBody, 400, "ambiguous_body",
                "The request must have either one Content-Length, a decimal number, or "
                "'Transfer-Encoding: chunked', not several of them."},
    RefusalText{HttpRefusal::kKeyMissing, 401, "key_missing",
                "An API key is needed: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'."},
    RefusalText{HttpRefusal::kKeyUnknown, 401, "key_unknown",
                "The API key is not one of this server's."},
    RefusalText{HttpRefusal::kHostRefused, 403, "host_refused",
                "This server does not answer to the name in the Host header. Names other than "
                "localhost and addresses must be configured."},
    RefusalText{HttpRefusal::kOriginRefused, 403, "origin_refused",
                "This server does not answer to web pages of that origin. Allowed origins must be "
                "configured."},
    RefusalText{HttpRefusal::kNotFound, 404, "not_found", "There is nothing at this path."},
    RefusalText{HttpRefusal::kMethodNotAllowed, 405, "method_not_allowed",
                "This path does not take this method; the Allow header lists those it takes."},
    RefusalText{HttpRefusal::kTimeout, 408, "request_timeout",
                "The request did not arrive in time."},
    RefusalText{HttpRefusal::kLengthRequired, 411, "length_required",
                "The request must have a body: send Content-Length or chunks."},
    RefusalText{HttpRefusal::kBodyTooLarge, 413, "body_too_large",
                "The body is larger than this server accepts."},
    RefusalText{HttpRefusal::kTargetTooLong, 414, "target_too_long",
                "The request target is longer than this server accepts."},
    RefusalText{HttpRefusal::kContentType, 415, "content_type",
                "The body must be JSON: send 'Content-Type: application/json'."},
    RefusalText{HttpRefusal::kExpectation, 417, "expectation",
                "The only expectation that this server meets is 100-continue."},
    RefusalText{HttpRefusal::kHeadTooLarge, 431, "head_too_large",
                "The headers are larger or more than this server accepts."},
    RefusalText{HttpRefusal::kInternal, 500, "internal", "The request ended without an answer."},
    RefusalText{HttpRefusal::kTransferEncoding, 501, "transfer_encoding",
                "The only transfer encoding that this server takes is chunked."},
    RefusalText{HttpRefusal::kTooManyConnections, 503, "too_many_connections",
                "Too many connections are open. Try again later."},
    RefusalText{HttpRefusal::kBodiesTooLarge, 503, "bodies_too_large",
                "The requests that wait hold all the memory for bodies. Try again later."},
    RefusalText{HttpRefusal::kStopping, 503, "stopping",
                "The server is stopping. Try again later."},
    RefusalText{HttpRefusal::kVersion, 505, "http_version", "This server speaks HTTP/1.1."},
};

}  // namespace

HttpError ErrorOf(HttpRefusal refusal, std::string_view path) {
  const auto index = static_cast<size_t>(refusal);  // the table is in the order of the enumeration
  HEARTH_CHECK(index < kTexts.size() && kTexts[index].refusal == refusal);
  const RefusalText& text = kTexts[index];
  return {.status = text.status, .code = text.code, .message = text.message, .path = path};
}

HttpErrorBody PlainErrorBody(const HttpError& error) {
  std::string body = R"({"error":{"code":")";
  body.append(error.code).append(R"(","message":")").append(error.message).append("\"}}\n");
  return {.content_type = "application/json", .body = std::move(body)};
}

HttpReply ReplyOf(const HttpError& error,
                  const std::function<HttpErrorBody(const HttpError&)>& error_body) {
  HttpErrorBody made = error_body ? error_body(error) : PlainErrorBody(error);
  HttpReply reply{.status = error.status,
                  .content_type = std::move(made.content_type),
                  .body = std::move(made.body)};
  if (error.status == 401) reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status == 503) reply.headers.push_back({"Retry-After", "1"});
  return reply;
}

}  // namespace hearth
