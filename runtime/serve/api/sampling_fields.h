// The fields of a request that say how tokens are chosen and when the answer ends: their names,
// types and ranges, and what holds where the request is silent. Only for .cc files.
#pragma once

#include <array>
#include <string_view>

#include "absl/status/status.h"

#include "runtime/serve/api/api_call.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/model_facts.h"

namespace hearth {

inline constexpr std::array<std::string_view, 17> kSamplingFieldNames = {"temperature",
                                                                         "top_p",
                                                                         "top_k",
                                                                         "min_p",
                                                                         "presence_penalty",
                                                                         "frequency_penalty",
                                                                         "repetition_penalty",
                                                                         "logit_bias",
                                                                         "seed",
                                                                         "min_tokens",
                                                                         "ignore_eos",
                                                                         "stop",
                                                                         "max_tokens",
                                                                         "max_completion_tokens",
                                                                         "priority",
                                                                         "timeout",
                                                                         "cache_salt"};

// Reads them all but the longest answer.
absl::Status ReadSampling(const Fields& fields, const ModelFacts& facts, const CallContext& context,
                          CompletionRequest& request);

// max_tokens and max_completion_tokens, which must agree where both are given.
absl::Status ReadMaxTokens(const Fields& fields, CompletionRequest& request);

// A text or a list of texts, none of them empty.
absl::Status ReadStops(const Fields& fields, std::string_view name, CompletionRequest& request);

// Labels that clients attach and that change nothing here: their types alone are checked.
inline constexpr std::array<std::string_view, 8> kLabelFieldNames = {
    "user",  "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "speed", "store",    "service_tier"};
absl::Status CheckLabels(const Fields& fields);

// The fields of OpenAI's API that this server cannot follow: refused unless they say what is so
// anyway (n: 1).
inline constexpr std::array<std::string_view, 13> kFixedFieldNames = {"n",
                                                                      "best_of",
                                                                      "audio",
                                                                      "modalities",
                                                                      "functions",
                                                                      "function_call",
                                                                      "prediction",
                                                                      "web_search_options",
                                                                      "verbosity",
                                                                      "suffix",
                                                                      "logprob_token_ids",
                                                                      "echo",
                                                                      "use_beam_search"};
absl::Status CheckFixed(const Fields& fields);

}  // namespace hearth
