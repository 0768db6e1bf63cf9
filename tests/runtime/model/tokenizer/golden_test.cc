// Goal: the ids are those of the reference implementation. Method: golden files that
// tests/golden/make_tokenizer_golden.py wrote from the package `tokenizers`, over variants of one
// file.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/utf8.h"
#include "tests/runtime/model/tokenizer/tokenizer_cases.h"

namespace hearth {
namespace {

class Golden : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { variants_ = new std::vector<Variant>(AllVariants()); }
  static void TearDownTestSuite() { delete variants_; }

  static const Variant& Named(const std::string& name) {
    const auto found = std::find_if(variants_->begin(), variants_->end(),
                                    [&](const Variant& v) { return v.name == name; });
    EXPECT_NE(found, variants_->end()) << name;
    return *found;
  }

  static std::vector<Variant>* variants_;
};
std::vector<Variant>* Golden::variants_ = nullptr;

TEST_P(Golden, IdsEqualTheReference) {
  const std::vector<GoldenCase> cases = ReadGoldenCases(GetParam());
  ASSERT_FALSE(cases.empty());
  for (const GoldenCase& golden : cases) {
    for (const GoldenAnswer& answer : golden.answers) {
      for (const std::string& name : answer.variants) {
        const Variant& variant = Named(name);
        const std::vector<TokenId> ids = variant.tokenizer.Encode(golden.text, variant.special);
        if (!answer.ids.empty()) {
          EXPECT_EQ(ids, answer.ids) << golden.name << ", " << name;
        }
        EXPECT_EQ(ids.size(), answer.id_count) << golden.name << ", " << name;
        EXPECT_EQ(Fnv1aHex(ids), answer.fnv1a) << golden.name << ", " << name;
      }
    }
  }
}

TEST_P(Golden, DecodingGivesTheTextBack) {
  const Variant& variant = Named("flashlet");  // no normaliser, so the text itself
  for (const GoldenCase& golden : ReadGoldenCases(GetParam())) {
    std::string text;
    AppendReplacingBroken(golden.text, text);
    const std::vector<TokenId> ids = variant.tokenizer.Encode(golden.text, SpecialTokens::kParse);
    EXPECT_EQ(variant.tokenizer.Decode(ids, SkipSpecial::kNo), text) << golden.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Values("eval.json", "edge.json", "random.json", "runs.json"),
                         [](const testing::TestParamInfo<const char*>& file) {
                           const std::string name = file.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace hearth
