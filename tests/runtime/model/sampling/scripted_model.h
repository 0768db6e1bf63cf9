// A model for tests: logits that are a fixed function of the tokens before, so that plain decoding
// and decoding by windows can be compared token for token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/prng.h"
#include "runtime/base/top_logit.h"

namespace hearth {

class ScriptedModel {
 public:
  struct Options {
    uint32_t vocab_count = 16;
    uint64_t seed = 0;
    float logit_step = 0;  // logits are multiples of it, so that there are ties; 0: no rounding
    uint32_t context_tokens = 4;  // how many tokens back the logits depend on
  };
  explicit ScriptedModel(const Options& options) : options_(options) {}

  std::vector<float> Logits(std::span<const TokenId> before) const {
    uint64_t hash = SplitMix64(options_.seed);
    const size_t context = std::min<size_t>(before.size(), options_.context_tokens);
    for (const TokenId t : before.last(context)) hash = SplitMix64(hash ^ static_cast<uint64_t>(t));
    Prng prng(hash);
    std::vector<float> logits(options_.vocab_count);
    for (float& x : logits) {
      x = static_cast<float>(prng.Uniform() * 6 - 3);
      if (options_.logit_step > 0) {
        x = static_cast<float>(static_cast<int>(x / options_.logit_step)) * options_.logit_step;
      }
    }
    return logits;
  }

 private:
  Options options_;
};

// The `count` largest logits: what a card tells of a row.
inline std::vector<TopLogit> LargestOf(std::span<const float> logits, uint32_t count) {
  std::vector<TopLogit> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    all.push_back({.logit = logits[i], .token = static_cast<TokenId>(i)});
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.logit > b.logit; });
  all.resize(count);
  return all;
}

}  // namespace hearth
