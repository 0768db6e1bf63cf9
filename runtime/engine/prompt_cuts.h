// Where the passes over a prompt begin and end. A pass's width is part of its arithmetic, so a
// state that was kept at a border is only good for a prompt whose passes have a border there.
// Borders depend on nothing but the tokens before them and the one after: the borders of a prompt
// are borders of every longer prompt that begins with it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

// Fewer tokens than this are not worth a pass, nor a kept state.
inline constexpr uint32_t kPromptCutTokensMin = 128;

struct PromptCutRule {
  std::optional<TokenId> turn_marker;         // a pass begins here where it can
  uint32_t tokens_min = kPromptCutTokensMin;  // of a pass that a marker ends; at least 1
  uint32_t tokens_max = 256;                  // of any pass; at least tokens_min
  bool operator==(const PromptCutRule&) const = default;
};

// Passes of at most limits.prompt_rows_max tokens, cut before <|im_start|> where the vocabulary has
// that; half a pass is enough for a cut where that is fewer than kPromptCutTokensMin.
PromptCutRule PromptCutRuleOf(const PassLimits& limits, const Tokenizer& tokenizer);

// Where the passes over a prompt end, rising; the last is its end, tokens.size(), which is a border
// of a longer prompt only by chance.
std::vector<uint32_t> PromptCuts(std::span<const TokenId> tokens, const PromptCutRule& rule);

// The end of the pass that begins at `begin`, itself 0 or a border.
uint32_t NextPromptCut(std::span<const TokenId> tokens, uint32_t begin, const PromptCutRule& rule);

}  // namespace hearth
