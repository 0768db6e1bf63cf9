// The nearest name: slips are found, other words are not guessed at.
#include "runtime/config/nearest.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", "abc"), 0u);
  EXPECT_EQ(EditDistance("abc", "abd"), 1u);
  EXPECT_EQ(EditDistance("abc", "acb"), 1u);
  EXPECT_EQ(EditDistance("abc", "ac"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(EditDistance, IsSymmetric) {
  const std::vector<std::string> words = {"", "a", "ab", "ba", "max-tokens", "mxa-token", "tokens"};
  for (const std::string& a : words) {
    for (const std::string& b : words) EXPECT_EQ(EditDistance(a, b), EditDistance(b, a)) << a << b;
  }
}

TEST(NearestName, FindsASlipAndNothingFarther) {
  const std::vector<std::string> names = {"--max-tokens", "--tokens", "--top-k", "--top-p"};
  EXPECT_EQ(NearestName("--max-token", names), "--max-tokens");
  EXPECT_EQ(NearestName("--maxtokens", names), "--max-tokens");
  EXPECT_EQ(NearestName("--top-q", names), "--top-k") << "the first of equals";
  EXPECT_EQ(NearestName("--context-length", names), "");
  EXPECT_EQ(NearestName("", names), "");
}

TEST(NearestName, ShortNamesAreNotReplacedWhole) {
  const std::vector<std::string> names = {"ab"};
  EXPECT_EQ(NearestName("xy", names), "");
}

TEST(NearestName, VeryLongTextHasNoNearest) {
  const std::vector<std::string> names = {"run"};
  EXPECT_EQ(NearestName(std::string(1 << 20, 'r'), names), "");
}

}  // namespace
}  // namespace hearth
