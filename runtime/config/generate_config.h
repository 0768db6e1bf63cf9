// What `hearth run` generates, from what, and how: the fields of one generation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/config/cache_config.h"
#include "runtime/config/compute_config.h"
#include "runtime/config/field.h"
#include "runtime/config/window_trace_config.h"

namespace hearth {

struct GenerateConfig {
  std::string pack;
  std::string prompt;  // text; exactly one of prompt and tokens is given
  std::string tokens;  // path of a JSON array of ids
  bool chat = false;
  uint32_t max_tokens = 128;  // enough for an answer, little enough to wait for
  bool ignore_eos = false;
  uint32_t min_tokens = 0;
  std::vector<std::string> stop;

  float temperature = 0.0f;  // greedy: the same text every time unless asked otherwise
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::vector<std::string> logit_bias;  // "TOKEN:VALUE", read by ParseLogitBias
  uint64_t seed = 0;

  uint32_t spec = 3;  // a window of four rows: most of the gain, and drafts that mostly survive
  bool stats = false;
  WindowTraceConfig trace;
  CacheConfig cache;
  ComputeConfig compute;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
    v("prompt", prompt, "text to continue, or the user's message with --chat");
    v("tokens", tokens, "JSON array of token ids to continue instead", {.metavar = "FILE"});
    v("chat", chat, "wrap the prompt in the model's chat template");
    v("max_tokens", max_tokens, "most tokens to generate", {.minimum = 1, .maximum = 1 << 20});
    v("min_tokens", min_tokens, "no end of text before this many, 0 = off",
      {.minimum = 0, .maximum = 1 << 20});
    v("ignore_eos", ignore_eos, "go on past end-of-text tokens");
    v("stop", stop, "end before this text; may be given several times");
    v("temperature", temperature, "0 = greedy", {.minimum = 0, .maximum = 100});
    v("top_k", top_k, "sample from the N best, 0 = all", {.minimum = 0, .maximum = 1 << 20});
    v("top_p", top_p, "sample from the best that add up to N", {.minimum = 0, .maximum = 1});
    v("min_p", min_p, "drop what is below N times the best", {.minimum = 0, .maximum = 1});
    v("repetition_penalty", repetition_penalty, "divides logits of tokens seen, 1 = off",
      {.minimum = 0.01, .maximum = 100});
    v("frequency_penalty", frequency_penalty, "logits per earlier output, 0 = off",
      {.minimum = -2, .maximum = 2});
    v("presence_penalty", presence_penalty, "logits once it was output, 0 = off",
      {.minimum = -2, .maximum = 2});
    v("logit_bias", logit_bias, "added to the token's logit; may be given several times",
      {.metavar = "TOKEN:VALUE"});
    v("seed", seed, "of the random numbers");
    v("spec", spec, "most tokens drafted per window, 0 = off", {.minimum = 0, .maximum = 8});
    v("stats", stats, "print which tier served the experts, layer by layer");
    trace.Visit(v);
    cache.Visit(v);
    compute.Visit(v);
  }

  // Both or no source of the prompt, or fields without effect under the others.
  absl::Status Validate(const GivenFields& given) const;
};

struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};
// "TOKEN:VALUE": an id and a number. Whether the vocabulary has the id is for the sampler to say.
absl::StatusOr<TokenBias> ParseLogitBias(std::string_view text);

}  // namespace hearth
