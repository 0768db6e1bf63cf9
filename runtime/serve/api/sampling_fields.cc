#include "runtime/serve/api/sampling_fields.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/engine/prefix_cache.h"
#include "runtime/model/sampling/sampling_params.h"
#include "runtime/model/sampling/stop_strings.h"

namespace hearth {
namespace {

constexpr double kTemperatureMax = 100;
constexpr double kPenaltyMax = 2;
constexpr double kRepetitionPenaltyMin = 0.01;
constexpr double kRepetitionPenaltyMax = 100;
constexpr double kBiasMax = 100;
constexpr double kTimeoutSecMax = 86'400;
constexpr double kNsPerSecond = 1e9;

absl::Status ReadNumber(const Fields& fields, std::string_view name, NumberRange range,
                        float& value) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<double> found, fields.Number(name, range));
  if (found.has_value()) value = static_cast<float>(*found);
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const Fields& fields, uint32_t vocab_count, SamplingParams& sampling) {
  constexpr std::string_view kName = "logit_bias";
  HEARTH_ASSIGN_OR_RETURN(const Json* biases, fields.Object(kName));
  if (biases == nullptr) return absl::OkStatus();
  if (biases->size() > kLogitBiasCountMax) {
    return fields.Error(kName, absl::StrCat("expected at most ", kLogitBiasCountMax,
                                            " tokens, found ", biases->size()));
  }
  for (const auto& [key, value] : biases->get_ref<const Json::object_t&>()) {
    TokenId token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 ||
        static_cast<uint32_t>(token) >= vocab_count || (key.size() > 1 && key[0] == '0')) {
      return fields.Error(kName, absl::StrCat("expected token ids from 0 to ", vocab_count - 1,
                                              " as names of its members"));
    }
    const double bias = value.is_number() ? value.get<double>() : kBiasMax + 1;
    if (!(bias >= -kBiasMax && bias <= kBiasMax)) {
      return fields.Error(kName, "expected numbers from -100 to 100 as values");
    }
    sampling.logit_bias.push_back({.token = token, .bias = static_cast<float>(bias)});
  }
  return absl::OkStatus();
}

absl::Status ReadPriority(const Fields& fields, CompletionRequest& request) {
  const Json* found = fields.Find("priority");
  if (found == nullptr) return absl::OkStatus();
  if (found->is_number_integer()) {  // the sooner the smaller, as other servers have it
    HEARTH_ASSIGN_OR_RETURN(const auto number, fields.Integer("priority", {INT32_MIN, INT32_MAX}));
    request.priority = number.value_or(0) < 0   ? Priority::kHigh
                       : number.value_or(0) > 0 ? Priority::kLow
                                                : Priority::kNormal;
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const auto word, fields.Choice("priority", {"low", "normal", "high"}));
  request.priority = word.value_or("") == "low"    ? Priority::kLow
                     : word.value_or("") == "high" ? Priority::kHigh
                                                   : Priority::kNormal;
  return absl::OkStatus();
}

absl::Status ReadTimeout(const Fields& fields, const ModelFacts& facts,
                         CompletionRequest& request) {
  const double sec_max = facts.timeout_max_ns > 0
                             ? static_cast<double>(facts.timeout_max_ns) / kNsPerSecond
                             : kTimeoutSecMax;
  HEARTH_ASSIGN_OR_RETURN(const auto timeout, fields.Number("timeout", {0, sec_max}));
  if (!timeout.has_value()) return absl::OkStatus();
  if (*timeout < 1 / kNsPerSecond) {
    return fields.Error("timeout", "expected seconds, more than 0");
  }
  request.timeout_ns = static_cast<int64_t>(*timeout * kNsPerSecond);
  return absl::OkStatus();
}

absl::Status ReadChoice(const Fields& fields, const ModelFacts& facts, SamplingParams& sampling) {
  sampling.temperature = facts.defaults.temperature;
  sampling.top_k = facts.defaults.top_k;
  sampling.top_p = facts.defaults.top_p;
  sampling.min_p = facts.defaults.min_p;
  sampling.repetition_penalty = facts.defaults.repetition_penalty;
  HEARTH_RETURN_IF_ERROR(
      ReadNumber(fields, "temperature", {0, kTemperatureMax}, sampling.temperature));
  HEARTH_RETURN_IF_ERROR(ReadNumber(fields, "top_p", {0, 1}, sampling.top_p));
  HEARTH_RETURN_IF_ERROR(ReadNumber(fields, "min_p", {0, 1}, sampling.min_p));
  HEARTH_RETURN_IF_ERROR(ReadNumber(fields, "presence_penalty", {-kPenaltyMax, kPenaltyMax},
                                    sampling.presence_penalty));
  HEARTH_RETURN_IF_ERROR(ReadNumber(fields, "frequency_penalty", {-kPenaltyMax, kPenaltyMax},
                                    sampling.frequency_penalty));
  HEARTH_RETURN_IF_ERROR(ReadNumber(fields, "repetition_penalty",
                                    {kRepetitionPenaltyMin, kRepetitionPenaltyMax},
                                    sampling.repetition_penalty));
  const uint32_t vocab_count = facts.tokenizer->vocab_count();
  HEARTH_ASSIGN_OR_RETURN(const auto top_k, fields.Integer("top_k", {0, vocab_count}));
  if (top_k.has_value()) sampling.top_k = static_cast<uint32_t>(*top_k);
  return ReadLogitBias(fields, vocab_count, sampling);
}

}  // namespace

absl::Status ReadSampling(const Fields& fields, const ModelFacts& facts, const CallContext& context,
                          CompletionRequest& request) {
  SamplingParams& sampling = request.sampling;
  HEARTH_RETURN_IF_ERROR(ReadChoice(fields, facts, sampling));
  HEARTH_ASSIGN_OR_RETURN(const auto seed, fields.Integer("seed", {0, INT64_MAX}));
  sampling.seed = seed.has_value() ? static_cast<uint64_t>(*seed) : context.seed;
  HEARTH_ASSIGN_OR_RETURN(const auto min_tokens, fields.Integer("min_tokens", {0, kMinTokensMax}));
  if (min_tokens.has_value()) sampling.min_tokens = static_cast<uint32_t>(*min_tokens);
  HEARTH_ASSIGN_OR_RETURN(const auto ignore_eos, fields.Bool("ignore_eos"));
  request.ignore_stop_tokens = ignore_eos.value_or(false);
  HEARTH_RETURN_IF_ERROR(ReadStops(fields, "stop", request));
  HEARTH_RETURN_IF_ERROR(ReadPriority(fields, request));
  HEARTH_RETURN_IF_ERROR(ReadTimeout(fields, facts, request));
  HEARTH_ASSIGN_OR_RETURN(const auto salt, fields.Text("cache_salt"));
  if (salt.has_value()) {
    if (salt->empty() || salt->size() > kPrefixSaltBytesMax) {
      return fields.Error("cache_salt",
                          absl::StrCat("expected 1 to ", kPrefixSaltBytesMax, " bytes"));
    }
    request.cache_salt = *salt;
  }
  return sampling.Validate(facts.tokenizer->vocab_count());
}

absl::Status ReadMaxTokens(const Fields& fields, CompletionRequest& request) {
  constexpr IntegerRange kRange = {1, INT32_MAX};
  HEARTH_ASSIGN_OR_RETURN(const auto older, fields.Integer("max_tokens", kRange));
  HEARTH_ASSIGN_OR_RETURN(const auto newer, fields.Integer("max_completion_tokens", kRange));
  if (older.has_value() && newer.has_value() && *older != *newer) {
    return fields.Error("max_completion_tokens", "differs from max_tokens: give one of them");
  }
  if (older.has_value()) request.max_tokens = static_cast<uint32_t>(*older);
  if (newer.has_value()) request.max_tokens = static_cast<uint32_t>(*newer);
  return absl::OkStatus();
}

absl::Status ReadStops(const Fields& fields, std::string_view name, CompletionRequest& request) {
  const Json* found = fields.Find(name);
  if (found == nullptr) return absl::OkStatus();
  const Json list = found->is_string() ? Json::array({*found}) : *found;
  const std::string place = fields.PlaceOf(name);
  if (!list.is_array()) return WrongType(place, "a string or a list of strings", list);
  if (list.size() > kStopStringCountMax) {
    return fields.Error(name, absl::StrCat("expected at most ", kStopStringCountMax,
                                           " strings, found ", list.size()));
  }
  size_t bytes = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string()) return WrongType(ElementPlace(place, i), "a string", list[i]);
    auto text = list[i].get<std::string>();
    if (text.empty()) return fields.Error(name, "an empty string would end every answer at once");
    bytes += text.size();
    request.stop_strings.push_back(std::move(text));
  }
  if (bytes > kStopStringBytesMax) {
    return fields.Error(name, absl::StrCat("expected at most ", kStopStringBytesMax,
                                           " bytes in all, found ", bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckLabels(const Fields& fields) {
  for (const std::string_view name :
       {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}) {
    HEARTH_RETURN_IF_ERROR(fields.Text(name).status());
  }
  HEARTH_RETURN_IF_ERROR(fields.Object("metadata").status());
  HEARTH_RETURN_IF_ERROR(
      fields.Choice("service_tier", {"auto", "default", "standard_only"}).status());
  HEARTH_RETURN_IF_ERROR(fields.Choice("speed", {"standard"}).status());
  HEARTH_ASSIGN_OR_RETURN(const auto store, fields.Bool("store"));
  if (store.value_or(false)) {
    return fields.Error("store", "this server keeps no answers; expected false",
                        "unsupported_parameter");
  }
  return absl::OkStatus();
}

absl::Status CheckFixed(const Fields& fields) {
  for (const std::string_view name : {"n", "best_of"}) {
    const Json* found = fields.Find(name);
    if (found == nullptr) continue;
    if (!found->is_number_integer()) {
      return WrongType(fields.PlaceOf(name), "the integer 1", *found);
    }
    if (*found != 1) {
      return fields.Error(name, "this server gives one answer per request; expected 1",
                          "unsupported_value");
    }
  }
  if (const Json* found = fields.Find("modalities"); found != nullptr) {
    if (*found != Json::array({"text"})) {
      return fields.Error("modalities", "expected [\"text\"]", "unsupported_value");
    }
  }
  HEARTH_RETURN_IF_ERROR(fields.Choice("verbosity", {"medium"}).status());
  for (const std::string_view name : {"use_beam_search", "echo"}) {
    HEARTH_ASSIGN_OR_RETURN(const auto flag, fields.Bool(name));
    if (flag.value_or(false)) {
      return fields.Error(name, "not supported; expected false", "unsupported_parameter");
    }
  }
  if (const Json* suffix = fields.Find("suffix"); suffix != nullptr && *suffix != "") {
    return fields.Error("suffix", "not supported", "unsupported_parameter");
  }
  for (const std::string_view name :
       {"audio", "prediction", "web_search_options", "logprob_token_ids"}) {
    if (fields.Has(name)) {
      return fields.Error(name, "not supported by this server", "unsupported_parameter");
    }
  }
  for (const std::string_view name : {"functions", "function_call"}) {
    if (fields.Has(name)) {
      return fields.Error(name, "replaced by tools and tool_choice", "unsupported_parameter");
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth
