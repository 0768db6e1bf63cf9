// The head of an answer as bytes, and the framing of its body.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/http/http_message.h"

namespace hearth {

enum class BodyFraming {
  kNone,        // no body is sent: the status or the method has none
  kLength,      // Content-Length
  kChunked,     // HTTP/1.1 streams
  kUntilClose,  // HTTP/1.0 streams
};

struct ResponseHeadParts {
  int status = 200;
  std::string_view content_type;  // empty: none
  const std::vector<HttpHeader>* headers = nullptr;
  BodyFraming framing = BodyFraming::kLength;
  uint64_t body_bytes = 0;  // kLength; kNone: what a GET would have, where the status allows a body
  bool keep_alive = true;
  int64_t unix_seconds = 0;
  std::string_view cors_origin;  // empty: no CORS headers
};

// With the security headers that every answer has. Headers that hold anything but a token and
// printable text are left out.
std::string ResponseHead(const ResponseHeadParts& parts);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string HttpDate(int64_t unix_seconds);

// 204 and 304 have no body.
bool StatusHasBody(int status);

// One chunk around a piece that is not empty.
void AppendChunk(std::string_view piece, std::string& out);

}  // namespace hearth
