// See response_head.h.
#include "runtime/serve/http/response_head.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "runtime/base/check.h"

namespace hearth {
namespace {

// Answers are data for the program that asked: nobody may sniff, frame, cache or embed them.
constexpr std::string_view kSecurityHeaders =
    "X-Content-Type-Options: nosniff\r\n"
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n";

void AppendNumber(uint64_t value, int base, std::string& out) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr;
  out.append(digits.data(), static_cast<size_t>(end - digits.data()));
}

bool IsHeaderName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}
bool IsHeaderValue(std::string_view value) {
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; });
}

void AppendHeader(std::string_view name, std::string_view value, std::string& out) {
  if (!IsHeaderName(name) || !IsHeaderValue(value)) return;
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

bool StatusHasBody(int status) { return status >= 200 && status != 204 && status != 304; }

std::string HttpDate(int64_t unix_seconds) {
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t seconds = unix_seconds;
  struct tm parts {};
  if (gmtime_r(&seconds, &parts) == nullptr) return "Thu, 01 Jan 1970 00:00:00 GMT";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<size_t>(parts.tm_wday)], parts.tm_mday,
                kMonths[static_cast<size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                parts.tm_min, parts.tm_sec);
  return text.data();
}

std::string ResponseHead(const ResponseHeadParts& parts) {
  HEARTH_CHECK(parts.status >= 200 && parts.status <= 999);
  std::string out;
  out.reserve(512);
  out.append("HTTP/1.1 ");
  AppendNumber(static_cast<uint64_t>(parts.status), 10, out);
  out.append(" ").append(ReasonPhrase(parts.status)).append("\r\n");
  out.append("Date: ").append(HttpDate(parts.unix_seconds)).append("\r\n");
  if (!parts.content_type.empty()) AppendHeader("Content-Type", parts.content_type, out);
  if (parts.framing == BodyFraming::kChunked) out.append("Transfer-Encoding: chunked\r\n");
  if (parts.framing == BodyFraming::kLength ||
      (parts.framing == BodyFraming::kNone && StatusHasBody(parts.status))) {
    out.append("Content-Length: ");
    AppendNumber(parts.body_bytes, 10, out);
    out.append("\r\n");
  }
  if (!parts.keep_alive) out.append("Connection: close\r\n");
  out.append(kSecurityHeaders);
  if (!parts.cors_origin.empty()) {
    AppendHeader("Access-Control-Allow-Origin", parts.cors_origin, out);
    out.append("Vary: Origin\r\n");
  } else {
    out.append("Cross-Origin-Resource-Policy: same-origin\r\n");
  }
  if (parts.headers != nullptr) {
    for (const HttpHeader& header : *parts.headers) AppendHeader(header.name, header.value, out);
  }
  out.append("\r\n");
  return out;
}

void AppendChunk(std::string_view piece, std::string& out) {
  HEARTH_DCHECK(!piece.empty());  // an empty chunk would be the last
  AppendNumber(piece.size(), 16, out);
  out.append("\r\n").append(piece).append("\r\n");
}

}  // namespace hearth
