// What a request wants of reasoning: on or off, how hard, how long; and what the model's template
// makes of it. Only for .cc files: it shows nlohmann's JSON.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/model_facts.h"

namespace hearth {

struct ReasoningWish {
  std::optional<bool> enabled;        // none: as the template has it
  std::optional<std::string> effort;  // minimal, low, medium, high, xhigh
  std::optional<uint32_t> tokens_max;
  bool omit = false;  // the client does not want to see it
  std::string place;  // the field that said so last, for errors

  bool off() const { return enabled.has_value() && !*enabled; }
};

inline constexpr uint32_t kReasoningTokensMax = 1u << 20;
inline constexpr std::array<std::string_view, 6> kReasoningFieldNames = {
    "enable_thinking", "reasoning_effort", "reasoning",
    "thinking_budget", "thinking",         "include_reasoning"};

// OpenAI's dialect and its relatives: enable_thinking, reasoning_effort (with "none"), reasoning
// {enabled, effort, budget or max_tokens, exclude}, include_reasoning, thinking_budget, thinking
// {type, budget_tokens}. Refuses contradictions.
absl::StatusOr<ReasoningWish> ReadReasoning(const Fields& fields);

// Anthropic's thinking {type: enabled, disabled, adaptive; budget_tokens; display: summarized,
// which shows it whole here, or omitted}.
absl::Status ReadThinking(const Fields& fields, ReasoningWish& wish);

// Sets the template's variables enable_thinking and reasoning_effort. A wish that the template
// cannot fulfil is refused; one that holds anyway is not. An effort that it does not know becomes
// the next higher one that it knows, or its highest.
absl::Status ApplyReasoning(const ReasoningWish& wish, const ChatAbilities& abilities,
                            Json& variables);

}  // namespace hearth
