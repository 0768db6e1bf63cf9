// What a reply says of the work behind it: tokens, and under "hearth" who computed the experts,
// what became of drafts, how long it took. Undefined rates are null. Only for .cc files: it shows
// nlohmann's JSON.
#pragma once

#include <cstdint>

#include "runtime/serve/api/strict_json.h"
#include "runtime/serve/completion.h"

namespace hearth {

// {"experts": {"vram": {"entries", "distinct", "share"}, ...}, "drafts": {"offered", "accepted",
// "acceptance", "by_position"}, "bytes_read", "queued_ms", "time_to_first_token_ms", "total_ms",
// "prompt_tokens_per_second", "decode_tokens_per_second", "finish"}. Entries of the four services
// add up to those the rows asked for.
Json HearthUsage(const CompletionEnd& end);

// OpenAI's usage with HearthUsage under "hearth".
Json OpenAiUsage(const CompletionEnd& end, uint32_t reasoning_tokens);

// Anthropic's: input_tokens are those that had to be read, cache_read_input_tokens those found.
Json AnthropicUsage(const CompletionEnd& end);

}  // namespace hearth
