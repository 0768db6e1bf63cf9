// Goal: the ids are those of the reference implementation. Method: golden files that
// tests/golden/make_tokenizer_golden.py wrote from the package `tokenizers`, over variants of one
// file.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/utf8.h"
#include "tests/runtime/model/tokenizer/tokenizer_cases.h"

namespace hearth {
namespace {

constexpr const char* kGoldenFiles[] = {"eval.json", "edge.json", "random.json", "runs.json"};

void CheckAnswer(const Variant& variant, const GoldenCase& golden, const GoldenAnswer& answer) {
  const std::vector<TokenId> ids = variant.tokenizer.Encode(golden.text, variant.special);
  if (!answer.ids.empty()) {
    EXPECT_EQ(ids, answer.ids) << golden.name << ", " << variant.name;
  }
  EXPECT_EQ(ids.size(), answer.id_count) << golden.name << ", " << variant.name;
  EXPECT_EQ(Fnv1aHex(ids), answer.fnv1a) << golden.name << ", " << variant.name;
}

TEST(TokenizerGolden, IdsEqualTheReference) {
  const std::vector<Variant> variants = AllVariants();
  for (const char* file : kGoldenFiles) {
    const std::vector<GoldenCase> cases = ReadGoldenCases(file);
    ASSERT_FALSE(cases.empty()) << file;
    for (const GoldenCase& golden : cases) {
      for (const GoldenAnswer& answer : golden.answers) {
        ASSERT_FALSE(answer.variants.empty());
        for (const std::string& name : answer.variants) {
          const auto variant = std::find_if(variants.begin(), variants.end(),
                                            [&](const Variant& v) { return v.name == name; });
          ASSERT_NE(variant, variants.end()) << name;
          CheckAnswer(*variant, golden, answer);
        }
      }
    }
  }
}

TEST(TokenizerGolden, DecodingGivesTheTextBack) {
  const Tokenizer tokenizer = FlashletTokenizer();  // no normaliser, so the text itself
  for (const char* file : kGoldenFiles) {
    for (const GoldenCase& golden : ReadGoldenCases(file)) {
      std::string text;
      AppendReplacingBroken(golden.text, text);
      const std::vector<TokenId> ids = tokenizer.Encode(golden.text, SpecialTokens::kParse);
      EXPECT_EQ(tokenizer.Decode(ids, SkipSpecial::kNo), text) << golden.name;
    }
  }
}

}  // namespace
}  // namespace hearth
