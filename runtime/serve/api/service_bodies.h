// The small calls: names of models, health, text to tokens and back, and the refusal of what this
// server does not do.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/serve/api/api_error.h"
#include "runtime/serve/api/model_facts.h"

namespace hearth {

// GET /v1/models: OpenAI's list; for Anthropic's clients (header anthropic-version) theirs.
std::string ModelsBody(Dialect dialect, const ModelFacts& facts);
// GET /v1/models/NAME: NotFound for another name.
absl::StatusOr<std::string> ModelBody(Dialect dialect, const ModelFacts& facts,
                                      std::string_view name);

struct Health {
  bool ready = false;
  bool stopping = false;
  uint32_t requests_running = 0;
  uint32_t requests_waiting = 0;
};
std::string HealthBody(const Health& health);

// POST /tokenize: {"prompt" or "content": text} or a chat's {"messages": ...}; "with_pieces" or
// "return_token_strs" add each token's text, "parse_special": false encodes control tokens as text.
absl::StatusOr<std::string> TokenizeBody(std::string_view body, const ModelFacts& facts);
// POST /detokenize: {"tokens": [...]}.
absl::StatusOr<std::string> DetokenizeBody(std::string_view body, const ModelFacts& facts);
// POST /v1/messages/count_tokens.
absl::StatusOr<std::string> CountTokensBody(std::string_view body, const ModelFacts& facts);

// The polite refusal of /v1/embeddings and others, with HTTP status 501.
absl::Status NotServed(std::string_view what);

}  // namespace hearth
