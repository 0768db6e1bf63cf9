// Bytes to one request: stricter than the standard asks, so that no proxy in front and we can ever
// disagree about where a request ends. Line ends are CRLF, no folded headers, no control
// characters, one Content-Length or chunks. Knows no sockets. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/serve/http/http_error.h"
#include "runtime/serve/http/http_message.h"
#include "runtime/serve/http/http_options.h"

namespace hearth {

// What the head says besides the request itself.
struct RequestHead {
  HttpRequest request;  // without peer and key
  std::string host;     // of the Host header, or of an absolute target; empty: HTTP/1.0 without one
  bool http_1_1 = true;
  bool keep_alive = true;     // the client would go on with this connection
  bool has_body = false;      // a Content-Length above 0, or chunks
  bool has_length = false;    // Content-Length or chunks are there
  uint64_t length_bytes = 0;  // Content-Length, where it is there
  bool expects_continue = false;
};

class RequestParser {
 public:
  enum class Step {
    kMore,     // feed what comes next, with what was not used in front of it
    kHead,     // the head is complete: look at it, LimitBody, feed on (also with no bytes)
    kDone,     // Take the request
    kRefused,  // see refusal(); the connection cannot go on
  };
  struct Fed {
    Step step = Step::kMore;
    size_t used = 0;  // from the front of the bytes
  };

  explicit RequestParser(const HttpLimits& limits);
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;
  RequestParser& operator=(RequestParser&&) noexcept;

  // After kDone and kRefused nothing more may be fed.
  Fed Feed(std::string_view bytes);

  bool begun() const;   // a byte of the request line has come
  RequestHead& head();  // from kHead to Take; peer and key may be filled in
  // After kHead, before the body is fed. A larger body is refused, announced or not.
  void LimitBody(uint64_t bytes_max);
  uint64_t body_bytes() const;  // read so far
  HttpRequest Take();           // after kDone, once
  HttpRefusal refusal() const;  // after kRefused

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth
