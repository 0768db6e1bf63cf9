#include "runtime/engine/prompt_cuts.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {

PromptCutRule PromptCutRuleOf(const PassLimits& limits, const Tokenizer& tokenizer) {
  const uint32_t half = std::max(limits.prompt_rows_max / 2, 1u);
  return {.turn_marker = tokenizer.FindToken("<|im_start|>"),
          .tokens_min = std::min(kPromptCutTokensMin, half),
          .tokens_max = limits.prompt_rows_max};
}

uint32_t NextPromptCut(std::span<const TokenId> tokens, uint32_t begin, const PromptCutRule& rule) {
  HEARTH_CHECK(rule.tokens_min >= 1 && rule.tokens_max >= rule.tokens_min);
  HEARTH_CHECK(begin <= tokens.size());
  const auto end =
      begin + static_cast<uint32_t>(std::min<size_t>(tokens.size() - begin, rule.tokens_max));
  if (!rule.turn_marker) return end;
  for (uint64_t at = uint64_t{begin} + rule.tokens_min; at < end; ++at) {
    if (tokens[at] == *rule.turn_marker) return static_cast<uint32_t>(at);
  }
  return end;
}

std::vector<uint32_t> PromptCuts(std::span<const TokenId> tokens, const PromptCutRule& rule) {
  std::vector<uint32_t> cuts;
  for (uint32_t at = 0; at < tokens.size();) {
    at = NextPromptCut(tokens, at, rule);
    cuts.push_back(at);
  }
  return cuts;
}

}  // namespace hearth
