// OpenAI's requests, parsed from a body's members. Only for .cc files: it shows nlohmann's JSON;
// others call ParseApiCall.
#pragma once

#include "absl/status/statusor.h"

#include "runtime/serve/api/api_call.h"
#include "runtime/serve/api/fields.h"

namespace hearth {

absl::StatusOr<ApiCall> ParseOpenAiChat(const Fields& body, const ModelFacts& facts,
                                        const CallContext& context);
absl::StatusOr<ApiCall> ParseOpenAiCompletion(const Fields& body, const ModelFacts& facts,
                                              const CallContext& context);

}  // namespace hearth
