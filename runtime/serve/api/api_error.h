// Errors of the API: an absl::Status that knows which field it is about, and how each dialect says
// it to a client.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

// Who is spoken to.
enum class Dialect : uint8_t {
  kOpenAiChat,        // /v1/chat/completions, and everything that is not one of the two others
  kOpenAiCompletion,  // /v1/completions
  kAnthropic,         // /v1/messages
};

// InvalidArgument "<field>: <what>" that carries the field. `code` is OpenAI's, such as
// "unsupported_parameter"; empty: "invalid_value". Both texts must be ours: no bytes of a client.
absl::Status FieldError(std::string_view field, std::string_view what, std::string_view code = "");
// An error of another part with "<field>: " in front, which carries field and code. Of its text the
// first 1000 bytes are told, and '?' for what is not printable ASCII. ResourceExhausted becomes
// InvalidArgument: what goes beyond a limit of ours is no better later.
absl::Status AtField(const absl::Status& status, std::string_view field,
                     std::string_view code = "");
// The same with another HTTP status than the code of the Status stands for (413, 501...).
absl::Status WithHttpStatus(absl::Status status, int http_status);

// What a reply needs to know of an error.
struct ErrorReply {
  int http_status = 500;
  std::string body;              // JSON, valid UTF-8
  bool may_retry_later = false;  // a full queue, a server that is stopping: send Retry-After
};

// 400 for what a client can mend, 401, 403, 404, 413, 429 (full queue or no memory for it), 503
// (stopping), 504 (timeout), 500 with a fixed text for our own failures.
ErrorReply MakeErrorReply(Dialect dialect, const absl::Status& status);

// The body of a refusal by the transport itself (HttpServerOptions::error_body).
std::string TransportErrorBody(Dialect dialect, int http_status, std::string_view code,
                               std::string_view message);

}  // namespace hearth
