#include "runtime/model/sampling/logprobs.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/model/sampling/weighing.h"

namespace hearth {
namespace {

// Of equal logits the lower id is the larger.
bool IsLarger(std::span<const float> logits, TokenId a, TokenId b) {
  const float x = logits[static_cast<uint32_t>(a)], y = logits[static_cast<uint32_t>(b)];
  return x != y ? x > y : a < b;
}

// The largest, by falling order, into the tokens of `top`.
void SelectTop(std::span<const float> logits, std::span<TokenLogprob> top) {
  size_t kept = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (kept == top.size() && !IsLarger(logits, token, top.back().token)) continue;
    size_t at = kept < top.size() ? kept++ : kept - 1;
    for (; at > 0 && IsLarger(logits, token, top[at - 1].token); --at) top[at] = top[at - 1];
    top[at].token = token;
  }
}

}  // namespace

TokenLogprob ReadLogprobs(std::span<const float> logits, TokenId chosen,
                          std::span<TokenLogprob> top) {
  HEARTH_CHECK(top.size() <= kTopLogprobsMax && top.size() <= logits.size());
  HEARTH_CHECK(static_cast<uint32_t>(chosen) < logits.size());
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  Weighing(largest, 1).ForEach(logits, [&](size_t, double weight) { sum += weight; });
  const double log_sum = std::log(sum);
  const auto logprob = [&](TokenId token) {
    return static_cast<float>(double{logits[static_cast<uint32_t>(token)]} - largest - log_sum);
  };
  if (!top.empty()) SelectTop(logits, top);
  for (TokenLogprob& entry : top) entry.logprob = logprob(entry.token);
  return {.token = chosen, .logprob = logprob(chosen)};
}

}  // namespace hearth
