// The radix tree against a map of whole token sequences.
#include "runtime/engine/token_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

using Tokens = std::vector<TokenId>;
using Found = std::vector<std::pair<uint32_t, int>>;

Found Prefixes(TokenTrie<int>& trie, const Tokens& tokens) {
  Found found;
  trie.VisitPrefixes(tokens, [&](uint32_t length, int& v) { found.emplace_back(length, v); });
  return found;
}

Found Prefixes(const std::map<Tokens, int>& map, const Tokens& tokens) {
  Found found;
  for (size_t length = 0; length <= tokens.size(); ++length) {
    const auto it = map.find(Tokens(tokens.begin(), tokens.begin() + static_cast<long>(length)));
    if (it != map.end()) found.emplace_back(length, it->second);
  }
  return found;
}

TEST(TokenTrie, FindsEveryPrefixInOrder) {
  TokenTrie<int> trie;
  trie.At(Tokens{5, 6, 7, 8}) = 4;
  trie.At(Tokens{5, 6}) = 2;
  trie.At(Tokens{5, 6, 7, 9}) = 40;
  trie.At(Tokens{}) = 0;
  EXPECT_EQ(Prefixes(trie, {5, 6, 7, 9, 1}), (Found{{0, 0}, {2, 2}, {4, 40}}));
  EXPECT_EQ(Prefixes(trie, {5, 6, 7}), (Found{{0, 0}, {2, 2}}));
  EXPECT_EQ(Prefixes(trie, {6}), (Found{{0, 0}}));
  EXPECT_EQ(trie.value_count(), 4u);
}

TEST(TokenTrie, TellsWhatIsBelow) {
  TokenTrie<int> trie;
  trie.At(Tokens{1}) = 10;
  trie.At(Tokens{1, 2}) = 20;
  trie.At(Tokens{1, 3, 4}) = 30;
  trie.At(Tokens{1, 3, 5}) = 40;
  std::map<int, uint64_t> largest_below;
  trie.VisitFromLeaves([&](uint32_t, int& value, uint64_t largest) {
    largest_below[value] = largest;
    return static_cast<uint64_t>(value);
  });
  EXPECT_EQ(largest_below, (std::map<int, uint64_t>{{10, 40}, {20, 0}, {30, 0}, {40, 0}}));
}

TEST(TokenTrie, AgreesWithAMapWhateverIsInsertedAndErased) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Prng prng(seed);
    TokenTrie<int> trie;
    std::map<Tokens, int> map;
    const auto draw = [&] {
      Tokens tokens(prng.Below(9));
      for (TokenId& t : tokens) t = static_cast<TokenId>(prng.Below(3));
      return tokens;
    };
    for (int step = 0; step < 200; ++step) {
      const Tokens tokens = draw();
      if (prng.Below(10) == 0) {
        const int residue = static_cast<int>(prng.Below(3));
        trie.EraseIf([&](int v) { return v % 3 == residue; });
        std::erase_if(map, [&](const auto& item) { return item.second % 3 == residue; });
      } else {
        trie.At(tokens) = step;
        map[tokens] = step;
      }
      const Tokens asked = draw();
      ASSERT_EQ(Prefixes(trie, asked), Prefixes(map, asked)) << "seed " << seed;
      ASSERT_EQ(trie.value_count(), map.size());
      size_t visited = 0;
      trie.VisitFromLeaves([&](uint32_t, int&, uint64_t) {
        ++visited;
        return uint64_t{0};
      });
      ASSERT_EQ(visited, map.size());
    }
    trie.EraseIf([](int) { return true; });
    EXPECT_EQ(trie.value_count(), 0u);
    EXPECT_EQ(trie.bytes(), 0u) << "what is not there takes nothing";
  }
}

}  // namespace
}  // namespace hearth
