// What the fields of a config must satisfy together.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/config/compute_config.h"
#include "runtime/config/devices_config.h"
#include "runtime/config/generate_config.h"
#include "runtime/config/score_config.h"

namespace hearth {
namespace {

constexpr float kLogitBiasMax = 100;  // as the sampler accepts

absl::Status Required(std::string_view value, std::string_view name) {
  if (!value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": is required"));
}

absl::Status ExactlyOne(const GivenFields& given, std::string_view a, std::string_view b) {
  if (given.Has(a) != given.Has(b)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(a), ", ", ToAbsl(b),
                                                 ": expected exactly one of them, found ",
                                                 given.Has(a) ? "both" : "neither"));
}

absl::Status NoEffect(std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": has no effect ", ToAbsl(why)));
}

}  // namespace

absl::Status DevicesConfig::Validate(const GivenFields& given) const {
  return ValidateWorkers(given, cpus);
}

absl::Status GenerateConfig::Validate(const GivenFields& given) const {
  HEARTH_RETURN_IF_ERROR(Required(pack, "pack"));
  HEARTH_RETURN_IF_ERROR(compute.Validate(given));
  HEARTH_RETURN_IF_ERROR(cache.Validate(given));
  HEARTH_RETURN_IF_ERROR(ExactlyOne(given, "prompt", "tokens"));
  if (given.Has("tokens")) HEARTH_RETURN_IF_ERROR(Required(tokens, "tokens"));
  if (chat && given.Has("tokens")) return NoEffect("chat", "on tokens; give a prompt");
  if (temperature == 0.0f) {
    for (const std::string_view name : {"top_k", "top_p", "min_p", "seed"}) {
      if (given.Has(name)) return NoEffect(name, "at temperature 0; give a temperature above 0");
    }
  }
  if (ignore_eos && given.Has("min_tokens")) {
    return NoEffect("min_tokens", "with ignore_eos, which never ends there");
  }
  if (min_tokens > max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "min_tokens: found ", min_tokens, ", expected at most max_tokens (", max_tokens, ")"));
  }
  for (const std::string& entry : logit_bias) {
    HEARTH_RETURN_IF_ERROR(ParseLogitBias(entry).status());
  }
  HEARTH_RETURN_IF_ERROR(trace.Validate(given));
  if (given.Has("trace_window") && max_tokens == 1) {
    return NoEffect("trace_window", "with max_tokens 1: the first token comes with the prompt");
  }
  if (given.Has("top_p") && top_p == 0.0f) {
    return absl::InvalidArgumentError("top_p: found 0, expected a number above 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenBias> ParseLogitBias(std::string_view text) {
  TokenBias entry;
  const char* const end = text.data() + text.size();
  const size_t colon = std::min(text.find(':'), text.size());
  const auto token = std::from_chars(text.data(), text.data() + colon, entry.token);
  const char* const number = text.data() + std::min(colon + 1, text.size());
  const auto bias = std::from_chars(number, end, entry.bias);
  const bool is_token = token.ec == std::errc() && token.ptr == text.data() + colon;
  const bool is_bias = bias.ec == std::errc() && bias.ptr == end;
  if (is_token && is_bias && entry.token >= 0 && std::abs(entry.bias) <= kLogitBiasMax) {
    return entry;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "logit_bias: found '", ToAbsl(text.substr(0, 60)),
      "', expected TOKEN:VALUE, an id and a number from -", kLogitBiasMax, " to ", kLogitBiasMax));
}

absl::Status ScoreConfig::Validate(const GivenFields& given) const {
  HEARTH_RETURN_IF_ERROR(Required(pack, "pack"));
  HEARTH_RETURN_IF_ERROR(compute.Validate(given));
  HEARTH_RETURN_IF_ERROR(cache.Validate(given));
  HEARTH_RETURN_IF_ERROR(ExactlyOne(given, "text", "tokens"));
  HEARTH_RETURN_IF_ERROR(trace.Validate(given));
  if (given.Has("trace_window") && window == 0) {
    return NoEffect("trace_window", "without window: a text in large parts has none");
  }
  for (const std::string_view name : {"window", "stats", "top"}) {
    if (given.Has(name) && given.Has("against")) return NoEffect(name, "with against");
  }
  return Required(given.Has("text") ? text : tokens, given.Has("text") ? "text" : "tokens");
}

}  // namespace hearth
