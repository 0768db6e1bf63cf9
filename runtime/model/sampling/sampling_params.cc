#include "runtime/model/sampling/sampling_params.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr float kTemperatureMax = 100;
constexpr float kRepetitionMin = 0.01f;
constexpr float kRepetitionMax = 100;
constexpr float kPenaltyMax = 2;  // the range of the OpenAI API
constexpr float kBiasMax = 100;   // likewise

struct FloatField {
  std::string_view name;
  float value;
  float min;
  float max;
};

absl::Status CheckRange(const FloatField& field) {
  // Written so that NaN, which compares false with everything, is refused.
  if (field.value >= field.min && field.value <= field.max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(field.name), " is ", field.value,
                                                 ", accepted is ", field.min, " to ", field.max));
}

absl::Status CheckBias(const std::vector<LogitBias>& entries, uint32_t vocab_count) {
  if (entries.size() > kLogitBiasCountMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "logit_bias has ", entries.size(), " entries, accepted are at most ", kLogitBiasCountMax));
  }
  std::vector<TokenId> tokens;
  tokens.reserve(entries.size());
  for (const LogitBias& entry : entries) {
    if (entry.token < 0 || static_cast<uint32_t>(entry.token) >= vocab_count) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias token ", entry.token,
                                                     " is not in the vocabulary, accepted is 0 to ",
                                                     vocab_count - 1));
    }
    HEARTH_RETURN_IF_ERROR(Annotate(CheckRange({"bias", entry.bias, -kBiasMax, kBiasMax}),
                                    ToStd(absl::StrCat("logit_bias of token ", entry.token))));
    tokens.push_back(entry.token);
  }
  std::sort(tokens.begin(), tokens.end());
  const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
  if (twice == tokens.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("logit_bias names token ", *twice, " twice, accepted is once"));
}

}  // namespace

absl::Status SamplingParams::Validate(uint32_t vocab_count) const {
  const std::array<FloatField, 6> fields = {{
      {"temperature", temperature, 0, kTemperatureMax},
      {"top_p", top_p, 0, 1},
      {"min_p", min_p, 0, 1},
      {"repetition_penalty", repetition_penalty, kRepetitionMin, kRepetitionMax},
      {"frequency_penalty", frequency_penalty, -kPenaltyMax, kPenaltyMax},
      {"presence_penalty", presence_penalty, -kPenaltyMax, kPenaltyMax},
  }};
  for (const FloatField& field : fields) HEARTH_RETURN_IF_ERROR(CheckRange(field));
  if (top_k > vocab_count) {
    return absl::InvalidArgumentError(absl::StrCat("top_k is ", top_k, ", accepted is 0 (off) to ",
                                                   vocab_count, ", the vocabulary"));
  }
  if (min_tokens > kMinTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens is ", min_tokens, ", accepted is 0 to ", kMinTokensMax));
  }
  return CheckBias(logit_bias, vocab_count);
}

}  // namespace hearth
