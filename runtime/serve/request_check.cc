#include "runtime/serve/request_check.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/engine/prefix_cache.h"
#include "runtime/model/sampling/stop_strings.h"

namespace hearth {
namespace {

absl::Status CheckPrompt(const CompletionRequest& request, uint32_t vocab_count) {
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt is empty, expected one token at least");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const TokenId token = request.prompt[i];
    if (token >= 0 && static_cast<uint32_t>(token) < vocab_count) continue;
    return absl::InvalidArgumentError(absl::StrCat("token ", i, " of the prompt is ", token,
                                                   ", accepted is 0 to ", vocab_count - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCompletionRequest(const CompletionRequest& request, const ModelGeometry& geometry,
                                    uint32_t context_tokens_max) {
  HEARTH_RETURN_IF_ERROR(CheckPrompt(request, geometry.vocab_count));
  if (request.prompt.size() >= context_tokens_max) {
    return absl::OutOfRangeError(absl::StrCat(
        "the prompt has ", request.prompt.size(), " tokens and the context holds ",
        context_tokens_max, ", of which one at least is the answer's: shorten the prompt"));
  }
  if (request.max_tokens == 0u) {
    return absl::InvalidArgumentError("max_tokens is 0, accepted is 1 and more");
  }
  HEARTH_RETURN_IF_ERROR(request.sampling.Validate(geometry.vocab_count));
  HEARTH_RETURN_IF_ERROR(StopStringMatcher::Create(request.stop_strings).status());
  if (request.top_logprobs > kTopLogprobsMax) {
    return absl::InvalidArgumentError(absl::StrCat("top_logprobs is ", request.top_logprobs,
                                                   ", accepted is 0 to ", kTopLogprobsMax));
  }
  if (request.cache_salt.size() > kPrefixSaltBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("cache_salt has ", request.cache_salt.size(),
                                                   " bytes, accepted are up to ",
                                                   kPrefixSaltBytesMax));
  }
  if (request.timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_ns is ", request.timeout_ns, ", accepted is 0 (none) and more"));
  }
  if (request.constraint != nullptr && request.ignore_stop_tokens) {
    return absl::InvalidArgumentError(
        "ignore_stop_tokens is set with a form for the output, which ends where the form does");
  }
  return absl::OkStatus();
}

}  // namespace hearth
