// Every refusal that the transport makes by itself: its status, its code and its fixed text.
#pragma once

#include <functional>

#include "runtime/serve/http/http_message.h"

namespace hearth {

enum class HttpRefusal {
  kBadRequest,          // 400: not HTTP/1.1 as the standard has it
  kBadTarget,           // 400: target or its escapes
  kBadHost,             // 400: none, or several
  kAmbiguousBody,       // 400: Content-Length and Transfer-Encoding together, or repeated
  kKeyMissing,          // 401
  kKeyUnknown,          // 401
  kHostRefused,         // 403
  kOriginRefused,       // 403
  kNotFound,            // 404
  kMethodNotAllowed,    // 405
  kTimeout,             // 408
  kLengthRequired,      // 411
  kBodyTooLarge,        // 413
  kTargetTooLong,       // 414
  kContentType,         // 415
  kExpectation,         // 417
  kHeadTooLarge,        // 431
  kInternal,            // 500: a writer was dropped without an answer
  kTransferEncoding,    // 501: anything but chunked
  kTooManyConnections,  // 503
  kBodiesTooLarge,      // 503: HttpLimits::bodies_bytes_max
  kStopping,            // 503
  kVersion,             // 505
};

// `path`: see HttpError.
HttpError ErrorOf(HttpRefusal refusal, std::string_view path = {});

// {"error":{"code":...,"message":...}}: what HttpServerOptions::error_body is when null.
HttpErrorBody PlainErrorBody(const HttpError& error);

// The whole answer, with what a status requires: WWW-Authenticate for 401, Retry-After for 503.
HttpReply ReplyOf(const HttpError& error,
                  const std::function<HttpErrorBody(const HttpError&)>& error_body);

}  // namespace hearth
