#include "runtime/serve/api/api_error.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/api/strict_json.h"

namespace hearth {
namespace {

constexpr char kFieldPayload[] = "hearth/api-field";
constexpr char kCodePayload[] = "hearth/api-code";
constexpr char kStatusPayload[] = "hearth/api-http-status";
constexpr char kInternalText[] = "The server failed to answer this request.";

std::string PayloadOf(const absl::Status& status, const char* name) {
  const auto payload = status.GetPayload(name);
  return payload.has_value() ? std::string(*payload) : "";
}

int HttpStatusOf(const absl::Status& status) {
  int named = 0;
  if (absl::SimpleAtoi(PayloadOf(status, kStatusPayload), &named)) return named;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string OpenAiTypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable";
    case 504:
      return "timeout";
    default:
      return http_status >= 500 && http_status != 501 ? "server_error" : "invalid_request_error";
  }
}

std::string OpenAiCodeOf(const absl::Status& status, int http_status) {
  if (std::string code = PayloadOf(status, kCodePayload); !code.empty()) return code;
  switch (status.code()) {
    case absl::StatusCode::kOutOfRange:
      return "context_length_exceeded";
    case absl::StatusCode::kUnimplemented:
      return "unsupported_value";
    default:
      break;
  }
  switch (http_status) {
    case 400:
      return "invalid_value";
    case 401:
      return "invalid_api_key";
    case 404:
      return "not_found";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_exceeded";
    case 503:
      return "unavailable";
    case 504:
      return "timeout";
    default:
      return http_status >= 500 ? "server_error" : "invalid_request";
  }
}

std::string AnthropicTypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status >= 500 && http_status != 501 ? "api_error" : "invalid_request_error";
  }
}

// Templates and grammars quote what they refuse; a client's bytes go no further than this.
std::string Printable(absl::string_view text) {
  constexpr size_t kTextBytesMax = 1000;
  std::string printable(text.substr(0, kTextBytesMax));
  for (char& c : printable) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return printable;
}

struct Parts {
  std::string type;
  std::string code;
  std::string field;
  std::string message;
};

Json BodyOf(Dialect dialect, const Parts& parts) {
  if (dialect == Dialect::kAnthropic) {
    return Json{{"type", "error"}, {"error", {{"type", parts.type}, {"message", parts.message}}}};
  }
  Json error{{"message", parts.message}, {"type", parts.type}};
  error["param"] = parts.field.empty() ? Json(nullptr) : Json(parts.field);
  error["code"] = parts.code;
  return Json{{"error", std::move(error)}};
}

}  // namespace

absl::Status FieldError(std::string_view field, std::string_view what, std::string_view code) {
  return AtField(absl::InvalidArgumentError(ToAbsl(what)), field, code);
}

absl::Status AtField(const absl::Status& status, std::string_view field, std::string_view code) {
  if (status.ok()) return status;
  // What goes beyond a limit of ours is the client's to mend: it is no better later.
  const absl::StatusCode code_told = status.code() == absl::StatusCode::kResourceExhausted
                                         ? absl::StatusCode::kInvalidArgument
                                         : status.code();
  absl::Status named(code_told, absl::StrCat(ToAbsl(field), ": ", Printable(status.message())));
  named.SetPayload(kFieldPayload, absl::Cord(ToAbsl(field)));
  if (!code.empty()) named.SetPayload(kCodePayload, absl::Cord(ToAbsl(code)));
  return named;
}

absl::Status WithHttpStatus(absl::Status status, int http_status) {
  status.SetPayload(kStatusPayload, absl::Cord(absl::StrCat(http_status)));
  return status;
}

ErrorReply MakeErrorReply(Dialect dialect, const absl::Status& status) {
  ErrorReply reply;
  reply.http_status = HttpStatusOf(status);
  reply.may_retry_later = reply.http_status == 429 || reply.http_status == 503;
  Parts parts;
  parts.field = PayloadOf(status, kFieldPayload);
  parts.code = OpenAiCodeOf(status, reply.http_status);
  parts.type = dialect == Dialect::kAnthropic ? AnthropicTypeOf(reply.http_status)
                                              : OpenAiTypeOf(reply.http_status);
  parts.message = reply.http_status == 500 ? kInternalText : std::string(status.message());
  reply.body = DumpJson(BodyOf(dialect, parts));
  return reply;
}

std::string TransportErrorBody(Dialect dialect, int http_status, std::string_view code,
                               std::string_view message) {
  return DumpJson(
      BodyOf(dialect, {.type = dialect == Dialect::kAnthropic ? AnthropicTypeOf(http_status)
                                                              : OpenAiTypeOf(http_status),
                       .code = std::string(code),
                       .field = "",
                       .message = std::string(message)}));
}

}  // namespace hearth
