// Anthropic's requests, parsed from a body's members. Only for .cc files: it shows nlohmann's JSON;
// others call ParseApiCall.
#pragma once

#include "absl/status/statusor.h"

#include "runtime/serve/api/api_call.h"
#include "runtime/serve/api/fields.h"

namespace hearth {

enum class MaxTokens : uint8_t { kRequired, kOptional };  // the latter to count tokens

absl::StatusOr<ApiCall> ParseAnthropic(const Fields& body, const ModelFacts& facts,
                                       const CallContext& context, MaxTokens max_tokens);

}  // namespace hearth
