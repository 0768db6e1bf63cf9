// What a client asked and what it is answered, as values: no sockets, no dialect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

struct HttpHeader {
  std::string name;
  std::string value;
};

// A request that passed the parser and the security checks. Everything in it was written by a
// stranger: none of it may reach the file system, a log line or an answer unescaped.
struct HttpRequest {
  std::string method;  // as sent: "GET"; case matters
  std::string path;    // percent-decoded, begins with '/' (or is "*"); no control characters
  std::string query;   // raw, without '?'
  std::vector<HttpHeader> headers;
  std::string body;    // whole, chunks joined
  std::string peer;    // "127.0.0.1", "::1", or "unix:1000" with the peer's user id
  std::string key_id;  // name of the API key that let it in; empty where no key is asked for

  // The first header of that name in any letter case; none: nullopt. Views die with the request.
  std::optional<std::string_view> Header(std::string_view name) const;
  // The first value of `name` in the query, percent-decoded ('+' is a space); none or a broken
  // escape: nullopt.
  std::optional<std::string> QueryValue(std::string_view name) const;
};

// A whole answer. Content-Length, Connection, Date and the security headers are the server's.
struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";  // left out where the body is empty
  std::string body;
  std::vector<HttpHeader> headers;  // further ones; names and values without CR, LF and NUL
};

// The head of an answer whose body comes in pieces.
struct StreamHead {
  int status = 200;
  std::string content_type = "text/event-stream";
  std::vector<HttpHeader> headers;
  // Sent by the server whenever nothing was written for that long, so that a silent stream keeps
  // proxies and clients awake; 0: never. Must be harmless between any two pieces.
  std::string keep_alive_text;
  int64_t keep_alive_ns = 0;
};

// Why the server itself refuses: the dialect decides what the body looks like (ErrorBody).
struct HttpError {
  int status = 500;
  std::string_view code;     // fixed: "header_too_large"; see http_error.h for all
  std::string_view message;  // fixed text: nothing of the request is in it
  std::string_view path;     // decoded; empty where it was not understood. Choose the dialect by it
                             // only: it is the client's text and must not be in the body
};
struct HttpErrorBody {
  std::string content_type;
  std::string body;
};

// "Not Found"; "Unknown" for numbers without a name here.
std::string_view ReasonPhrase(int status);
// Equal but for ASCII letter case.
bool EqualNoCase(std::string_view a, std::string_view b);
// %41 to A; nullopt for a broken escape.
std::optional<std::string> PercentDecode(std::string_view text);

}  // namespace hearth
