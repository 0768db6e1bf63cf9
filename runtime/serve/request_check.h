// What is wrong with a request, whatever else is served: told before it is taken in.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pack/format/geometry.h"
#include "runtime/serve/completion.h"

namespace hearth {

// InvalidArgument names the field, its value and what is accepted; OutOfRange, with both lengths,
// for a prompt that leaves no room for an answer in `context_tokens_max`.
absl::Status CheckCompletionRequest(const CompletionRequest& request, const ModelGeometry& geometry,
                                    uint32_t context_tokens_max);

}  // namespace hearth
