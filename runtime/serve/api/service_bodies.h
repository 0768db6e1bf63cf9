// The small calls: names of models, health, text to tokens and back, and the refusal of what this
// server does not do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/serve/api/api_error.h"
#include "runtime/serve/api/model_facts.h"

namespace hearth {

// GET /v1/models: OpenAI's list; for Anthropic's clients (header anthropic-version) theirs. Either
// says under "hearth" what a silent request gets: sampling, context, what the template can do.
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
// {"status": "ok", "starting" or "stopping", ...}. Anything but ok goes with HTTP status 503.
std::string HealthBody(const Health& health);

// POST /tokenize: {"prompt" or "content": text} or a chat request {"messages": ...}. With
// "return_token_strs" or "with_pieces" each token's text comes, too; "parse_special": false takes
// control tokens in a text as text. Answers {"tokens", "count", "max_model_len"}.
absl::StatusOr<std::string> TokenizeBody(std::string_view body, const ModelFacts& facts);
// POST /detokenize: {"tokens": [...]}. Answers {"prompt", "content"}, both the text.
absl::StatusOr<std::string> DetokenizeBody(std::string_view body, const ModelFacts& facts);
// POST /v1/messages/count_tokens: as /v1/messages, without max_tokens.
absl::StatusOr<std::string> CountTokensBody(std::string_view body, const ModelFacts& facts);

// The polite refusal of /v1/embeddings and others, with HTTP status 501. `what` is ours.
absl::Status NotServed(std::string_view what);

}  // namespace hearth
