// Goal: both merging methods do what the definition says: the lowest rank first, the leftmost of
// equals. Method: random vocabularies against a model that searches the whole list at every step.
#include "runtime/model/tokenizer/bpe.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/prng.h"

namespace hearth {
namespace {

// 256 bytes, then tokens made by random merges of earlier ones over the letters a to c.
TokenizerDescription RandomVocabulary(Prng& prng) {
  TokenizerDescription made;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<TokenId> pool = {'a', 'b', 'c'};
  std::map<std::string, TokenId> id_of;
  for (uint64_t i = prng.Below(60) + 1; i > 0; --i) {
    const TokenId left = pool[prng.Below(pool.size())];
    const TokenId right = pool[prng.Below(pool.size())];
    const std::string joined =
        tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
    const auto [at, is_new] = id_of.emplace(joined, static_cast<TokenId>(tokens.size()));
    if (is_new) {
      tokens.push_back(joined);
      pool.push_back(at->second);
    }
    made.merges.push_back({left, right, at->second});
  }
  for (const std::string& token : tokens) made.tokens.Append(token);
  made.in_model.assign(tokens.size(), true);
  return made;
}

std::vector<TokenId> ByDefinition(const TokenizerDescription& description,
                                  const std::string& text) {
  std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> merges;
  for (size_t rank = 0; rank < description.merges.size(); ++rank) {
    const BpeMerge& merge = description.merges[rank];
    merges[{merge.left, merge.right}] = {rank, merge.merged};
  }
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best = ids.size();
    std::pair<size_t, TokenId> best_merge{SIZE_MAX, -1};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found == merges.end() || found->second.first >= best_merge.first) continue;
      best = i;
      best_merge = found->second;
    }
    if (best == ids.size()) return ids;
    ids[best] = best_merge.second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeModel, MergesLikeTheDefinition) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Prng prng(seed);
    const TokenizerDescription description = RandomVocabulary(prng);
    const BpeModel model(description);
    BpeModel::Scratch scratch;
    for (int i = 0; i < 12; ++i) {
      // Short pieces are scanned, longer ones (more than 48 bytes) go through the heap.
      std::string text(prng.Below(i % 2 == 0 ? 48 : 160) + 1, ' ');
      for (char& c : text) c = static_cast<char>('a' + prng.Below(3));
      std::vector<TokenId> ids;
      model.EncodePiece(text, MergeInto::kAnyToken, scratch, ids);
      ASSERT_EQ(ids, ByDefinition(description, text)) << "seed " << seed << " text " << text;
    }
  }
}

TEST(BpeModel, WithIgnoreMergesAWholeTokenNeedsNoMerges) {
  TokenizerDescription description;
  for (int byte = 0; byte < 256; ++byte) {
    description.tokens.Append(std::string(1, static_cast<char>(byte)));
  }
  description.tokens.Append("abc");
  description.in_model.assign(257, true);
  BpeModel::Scratch scratch;
  for (const bool ignore_merges : {false, true}) {
    description.ignore_merges = ignore_merges;
    const BpeModel model(description);
    std::vector<TokenId> ids;
    model.EncodePiece("abc", MergeInto::kAnyToken, scratch, ids);
    EXPECT_EQ(ids.size(), ignore_merges ? 1u : 3u);
    ids.clear();
    model.EncodePiece("abcd", MergeInto::kAnyToken, scratch, ids);
    EXPECT_THAT(ids, testing::ElementsAre('a', 'b', 'c', 'd'));
  }
}

}  // namespace
}  // namespace hearth
