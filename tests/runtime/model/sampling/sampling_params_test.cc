// What a request may ask for, and that everything else is refused by name.
#include "runtime/model/sampling/sampling_params.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct FloatCase {
  const char* field;
  float SamplingParams::*member;
  std::vector<float> accepted;
  std::vector<float> refused;
};

std::vector<FloatCase> FloatCases() {
  const float huge = std::numeric_limits<float>::max();
  std::vector<FloatCase> cases = {
      {"temperature", &SamplingParams::temperature, {0, 1e-45f, 0.7f, 1, 100}, {-1, 100.01f}},
      {"top_p", &SamplingParams::top_p, {0, 0.5f, 1}, {-0.001f, 1.001f}},
      {"min_p", &SamplingParams::min_p, {0, 0.05f, 1}, {-0.001f, 1.001f}},
      {"repetition_penalty", &SamplingParams::repetition_penalty, {0.01f, 1, 1.3f, 100}, {0, -1}},
      {"frequency_penalty", &SamplingParams::frequency_penalty, {-2, 0, 2}, {-2.01f, 2.01f}},
      {"presence_penalty", &SamplingParams::presence_penalty, {-2, 0, 2}, {-2.01f, 2.01f}},
  };
  for (FloatCase& c : cases) {
    c.refused.insert(c.refused.end(), {kNan, -kNan, kInfinity, -kInfinity, huge, -huge});
  }
  return cases;
}

TEST(SamplingParams, DefaultsAreValidForAnyVocabulary) {
  EXPECT_TRUE(SamplingParams{}.Validate(1).ok());
  EXPECT_TRUE(SamplingParams{}.Validate(248320).ok());
}

TEST(SamplingParams, FloatFieldsAcceptTheirRangeAndNothingElse) {
  for (const FloatCase& c : FloatCases()) {
    for (const float value : c.accepted) {
      SamplingParams params;
      params.*c.member = value;
      EXPECT_TRUE(params.Validate(kVocab).ok()) << c.field << " " << value;
    }
    for (const float value : c.refused) {
      SamplingParams params;
      params.*c.member = value;
      const absl::Status status = params.Validate(kVocab);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field << " " << value;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
      EXPECT_THAT(std::string(status.message()), HasSubstr("accepted is"));
    }
  }
}

TEST(SamplingParams, MessageNamesFieldValueAndRange) {
  SamplingParams params;
  params.temperature = kNan;
  EXPECT_EQ(params.Validate(kVocab).message(), "temperature is nan, accepted is 0 to 100");
}

TEST(SamplingParams, TopKMayNotExceedTheVocabulary) {
  SamplingParams params;
  params.top_k = kVocab;
  EXPECT_TRUE(params.Validate(kVocab).ok());
  params.top_k = kVocab + 1;
  EXPECT_EQ(params.Validate(kVocab).message(),
            "top_k is 101, accepted is 0 (off) to 100, the vocabulary");
  params.top_k = UINT32_MAX;
  EXPECT_FALSE(params.Validate(kVocab).ok());
}

TEST(SamplingParams, MinTokensIsBounded) {
  SamplingParams params;
  params.min_tokens = kMinTokensMax;
  EXPECT_TRUE(params.Validate(kVocab).ok());
  params.min_tokens = kMinTokensMax + 1;
  EXPECT_THAT(std::string(params.Validate(kVocab).message()), HasSubstr("min_tokens is 1048577"));
}

TEST(SamplingParams, LogitBiasNamesTheBadEntry) {
  SamplingParams params;
  params.logit_bias = {{0, -100}, {99, 100}, {5, 0}};
  EXPECT_TRUE(params.Validate(kVocab).ok());
  for (const TokenId token : {-1, 100, INT32_MAX, INT32_MIN}) {
    params.logit_bias = {{0, 1}, {token, 1}};
    EXPECT_THAT(std::string(params.Validate(kVocab).message()),
                HasSubstr("logit_bias token " + std::to_string(token)));
  }
  for (const float bias : {kNan, kInfinity, -kInfinity, 100.1f, -100.1f}) {
    params.logit_bias = {{7, bias}};
    EXPECT_THAT(std::string(params.Validate(kVocab).message()),
                HasSubstr("logit_bias of token 7: bias is"));
  }
  params.logit_bias = {{3, 1}, {4, 1}, {3, 2}};
  EXPECT_THAT(std::string(params.Validate(kVocab).message()), HasSubstr("token 3 twice"));
}

TEST(SamplingParams, LogitBiasCountIsBounded) {
  SamplingParams params;
  for (uint32_t t = 0; t < kLogitBiasCountMax; ++t) {
    params.logit_bias.push_back({static_cast<TokenId>(t), 1});
  }
  EXPECT_TRUE(params.Validate(1u << 20).ok());
  params.logit_bias.push_back({static_cast<TokenId>(kLogitBiasCountMax), 1});
  EXPECT_THAT(std::string(params.Validate(1u << 20).message()), HasSubstr("16385 entries"));
}

}  // namespace
}  // namespace hearth
