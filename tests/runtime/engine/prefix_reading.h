// Prompts on the model of a sequence, read as a generation reads them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "runtime/engine/prefix_cache.h"
#include "tests/runtime/engine/fake_imager.h"

namespace hearth {

using Tokens = std::vector<TokenId>;
using Cuts = std::vector<uint32_t>;

inline Tokens Range(TokenId first, size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A cut every `width` tokens and at the end.
inline Cuts EveryCut(size_t tokens, uint32_t width) {
  Cuts cuts;
  for (uint32_t at = width; at < tokens; at += width) cuts.push_back(at);
  cuts.push_back(static_cast<uint32_t>(tokens));
  return cuts;
}

struct Reading {
  FakeSequence sequence;
  uint32_t reused = 0;
};

// As a generation reads a prompt.
inline Reading ReadPrompt(PrefixCache* cache, const PrefixQuery& query) {
  Reading reading;
  FakeSequence& s = reading.sequence;
  if (cache != nullptr) {
    if (const auto found = cache->Find(query)) {
      const absl::Status restored = cache->Restore(*found, s);
      EXPECT_TRUE(restored.ok()) << restored;
      reading.reused = found->token_count();
      EXPECT_EQ(s.token_count(), reading.reused);
    }
  }
  for (const uint32_t cut : query.cuts) {
    const uint32_t at = s.token_count();
    if (cut <= at) continue;
    s.Read(query.tokens.subspan(at, cut - at));
    if (query.drafts && cut > 1) s.Draft(query.tokens, cut - 1);
    if (cache == nullptr) continue;
    const absl::Status kept = cache->Keep(query, s);
    EXPECT_TRUE(kept.ok()) << kept;
  }
  return reading;
}

}  // namespace hearth
