#include "runtime/serve/api/reasoning_wish.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, 5> kEfforts = {"minimal", "low", "medium", "high", "xhigh"};
constexpr std::array<std::string_view, 6> kReasoningNames = {"enabled",    "effort",  "budget",
                                                             "max_tokens", "exclude", "summary"};
constexpr std::array<std::string_view, 3> kThinkingNames = {"type", "budget_tokens", "display"};

absl::Status SetEnabled(const std::string& place, bool enabled, ReasoningWish& wish) {
  if (wish.enabled.has_value() && *wish.enabled != enabled) {
    return FieldError(place, absl::StrCat("contradicts ", wish.place));
  }
  wish.enabled = enabled;
  wish.place = place;
  return absl::OkStatus();
}

absl::Status SetBudget(const std::string& place, int64_t tokens, ReasoningWish& wish) {
  if (tokens == 0) return SetEnabled(place, false, wish);
  if (wish.tokens_max.has_value() && *wish.tokens_max != static_cast<uint32_t>(tokens)) {
    return FieldError(place, absl::StrCat("contradicts ", wish.place));
  }
  wish.tokens_max = static_cast<uint32_t>(tokens);
  return SetEnabled(place, true, wish);
}

absl::Status ReadEffort(const Fields& fields, std::string_view name, ReasoningWish& wish) {
  HEARTH_ASSIGN_OR_RETURN(
      const auto effort,
      fields.Choice(name, {"none", "minimal", "low", "medium", "high", "xhigh", "max"}));
  if (!effort.has_value()) return absl::OkStatus();
  if (*effort == "none") return SetEnabled(fields.PlaceOf(name), false, wish);
  const std::string known = *effort == "max" ? "xhigh" : *effort;
  if (wish.effort.has_value() && *wish.effort != known) {
    return FieldError(fields.PlaceOf(name), absl::StrCat("contradicts ", wish.place));
  }
  wish.effort = known;
  if (!wish.enabled.has_value()) wish.place = fields.PlaceOf(name);
  return absl::OkStatus();
}

absl::Status ReadReasoningObject(const Fields& body, ReasoningWish& wish) {
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("reasoning"));
  if (json == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*json, "reasoning"));
  HEARTH_RETURN_IF_ERROR(fields.Only({kReasoningNames}));
  if (fields.Has("summary")) {
    return fields.Error("summary", "reasoning is told whole", "unsupported_parameter");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto exclude, fields.Bool("exclude"));
  wish.omit = exclude.value_or(false);
  HEARTH_ASSIGN_OR_RETURN(const auto enabled, fields.Bool("enabled"));
  if (enabled.has_value()) {
    HEARTH_RETURN_IF_ERROR(SetEnabled("reasoning.enabled", *enabled, wish));
  }
  HEARTH_RETURN_IF_ERROR(ReadEffort(fields, "effort", wish));
  for (const std::string_view name : {"budget", "max_tokens"}) {
    HEARTH_ASSIGN_OR_RETURN(const auto budget, fields.Integer(name, {0, kReasoningTokensMax}));
    if (budget.has_value()) {
      HEARTH_RETURN_IF_ERROR(SetBudget(fields.PlaceOf(name), *budget, wish));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadThinking(const Fields& body, ReasoningWish& wish) {
  HEARTH_ASSIGN_OR_RETURN(const Json* json, body.Object("thinking"));
  if (json == nullptr) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*json, "thinking"));
  HEARTH_RETURN_IF_ERROR(fields.Only({kThinkingNames}));
  HEARTH_ASSIGN_OR_RETURN(const auto display, fields.Choice("display", {"summarized", "omitted"}));
  if (display.has_value()) wish.omit = *display == "omitted";
  HEARTH_ASSIGN_OR_RETURN(const auto type,
                          fields.Choice("type", {"enabled", "disabled", "adaptive"}));
  if (!type.has_value()) return fields.Error("type", "missing", "missing_required_parameter");
  // Adaptive leaves it to the model, as templates do by themselves.
  if (*type != "adaptive") {
    HEARTH_RETURN_IF_ERROR(SetEnabled("thinking.type", *type == "enabled", wish));
  }
  HEARTH_ASSIGN_OR_RETURN(const auto budget,
                          fields.Integer("budget_tokens", {1, kReasoningTokensMax}));
  if (!budget.has_value()) return absl::OkStatus();
  return SetBudget("thinking.budget_tokens", *budget, wish);
}

absl::StatusOr<ReasoningWish> ReadReasoning(const Fields& fields) {
  ReasoningWish wish;
  HEARTH_ASSIGN_OR_RETURN(const auto enabled, fields.Bool("enable_thinking"));
  if (enabled.has_value()) HEARTH_RETURN_IF_ERROR(SetEnabled("enable_thinking", *enabled, wish));
  HEARTH_RETURN_IF_ERROR(ReadEffort(fields, "reasoning_effort", wish));
  HEARTH_RETURN_IF_ERROR(ReadReasoningObject(fields, wish));
  HEARTH_ASSIGN_OR_RETURN(const auto budget,
                          fields.Integer("thinking_budget", {0, kReasoningTokensMax}));
  if (budget.has_value()) HEARTH_RETURN_IF_ERROR(SetBudget("thinking_budget", *budget, wish));
  HEARTH_RETURN_IF_ERROR(ReadThinking(fields, wish));
  HEARTH_ASSIGN_OR_RETURN(const auto include, fields.Bool("include_reasoning"));
  if (include.has_value()) wish.omit = !*include;
  return wish;
}

absl::Status ApplyReasoning(const ReasoningWish& wish, const ChatAbilities& abilities,
                            Json& variables) {
  constexpr std::string_view kUnknown =
      "this model's chat template does not know it; leave it out, or have the server started with "
      "--chat-template and one that does";
  if (wish.enabled.has_value()) {
    if (abilities.reasoning_switch) {
      variables["enable_thinking"] = *wish.enabled;
    } else if (*wish.enabled != abilities.reasoning) {
      return FieldError(wish.place, kUnknown, "unsupported_parameter");
    }
  }
  if (!wish.effort.has_value() || wish.off()) return absl::OkStatus();
  if (abilities.efforts.empty()) return FieldError(wish.place, kUnknown, "unsupported_parameter");
  const auto rank = [](std::string_view effort) {
    return std::find(kEfforts.begin(), kEfforts.end(), effort) - kEfforts.begin();
  };
  std::string chosen = abilities.efforts.back();
  for (const std::string& effort : abilities.efforts) {
    if (rank(effort) < rank(*wish.effort)) continue;
    chosen = effort;
    break;
  }
  variables["reasoning_effort"] = chosen;
  return absl::OkStatus();
}

}  // namespace hearth
