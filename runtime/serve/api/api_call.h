// A client's request as parsed: what to compute and how to tell the answer. Pure: from JSON text,
// no socket, no clock, no randomness but what the caller gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/serve/api/api_error.h"
#include "runtime/serve/api/model_facts.h"
#include "runtime/serve/api/tool_set.h"
#include "runtime/serve/completion.h"

namespace hearth {

// Bounds what one body makes us hold: a context of 2^18 tokens is about 1 MB of text.
inline constexpr uint64_t kRequestBodyBytesMax = 16ull << 20;

// How the text of an answer is taken apart.
struct AnswerFormat {
  bool reasoning = false;                // <think>...</think> at its beginning is reasoning
  bool reasoning_open = false;           // the prompt ended inside reasoning
  bool omit_reasoning = false;           // it is not told
  bool trim_beginning = false;           // line breaks before the content are no part of it
  std::shared_ptr<const ToolSet> tools;  // null: what looks like a call stays text
  bool one_call = false;                 // the answer ends after its first call
};

struct ApiCall {
  Dialect dialect = Dialect::kOpenAiChat;
  CompletionRequest request;
  AnswerFormat format;
  std::string model;  // as the reply names it
  bool stream = false;
  bool include_usage = false;  // a last chunk of a stream with the usage
  // What the reply needs after `request` was given away.
  uint32_t prompt_tokens = 0;             // as long as request.prompt
  std::vector<std::string> client_stops;  // of request.stop_strings, those that the client named
};

// What the caller brings to a request.
struct CallContext {
  uint64_t seed = 0;  // where the request names none
};

// Every error names the field and what is accepted, and echoes no bytes of the body. A prompt that
// leaves no room for an answer is OutOfRange with both lengths; an unknown model is NotFound.
// FailedPrecondition: chat with a model that has no chat template.
absl::StatusOr<ApiCall> ParseApiCall(Dialect dialect, std::string_view body,
                                     const ModelFacts& facts, const CallContext& context);

}  // namespace hearth
