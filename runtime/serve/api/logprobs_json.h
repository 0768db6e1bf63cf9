// Log probabilities in OpenAI's two forms. Only for .cc files: it shows nlohmann's JSON.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/serve/api/strict_json.h"
#include "runtime/serve/completion.h"

namespace hearth {

// Of a chat: a list of {"token", "logprob", "bytes", "top_logprobs"}. Tokens that are no whole
// characters show U+FFFD as text; their bytes are exact.
Json ChatLogprobs(std::span<const TokenReport> reports, const Tokenizer& tokenizer);

// Of /v1/completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets count
// characters of the tokens before, from `offset`, which is moved on.
Json CompletionLogprobs(std::span<const TokenReport> reports, const Tokenizer& tokenizer,
                        uint64_t& offset);

}  // namespace hearth
