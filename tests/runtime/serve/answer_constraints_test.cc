// A request's wishes as a constraint on tokens: every answer drawn under one has the form asked
// for, after its reasoning.
#include "runtime/serve/answer_constraints.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/serve/api/answer_parser.h"
#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using Form = ConstraintWish::Form;

constexpr TokenId kStop = 2;  // <|im_end|>, see profiles/flashlet/generation_config.json

std::unique_ptr<AnswerConstraints> Source(const ApiModel& model) {
  auto source = AnswerConstraints::Create(*model.facts.tokenizer, {kStop},
                                          model.facts.tokenizer->vocab_count());
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *std::move(source) : nullptr;
}

// Draws allowed tokens at random until a stop token or `tokens_max`.
std::vector<TokenId> Draw(TokenConstraint& constraint, uint32_t vocab_count, uint64_t seed,
                          size_t tokens_max) {
  Prng prng(seed);
  std::vector<TokenId> drawn;
  while (drawn.size() < tokens_max) {
    const std::span<const uint64_t> allowed = constraint.Allowed();
    std::vector<TokenId> choices;
    for (TokenId t = 0; t < static_cast<TokenId>(vocab_count); ++t) {
      const auto bit = static_cast<uint32_t>(t);
      if (allowed.empty() || (allowed[bit / 64] >> (bit % 64) & 1) != 0) choices.push_back(t);
    }
    EXPECT_FALSE(choices.empty());
    const bool may_stop = std::find(choices.begin(), choices.end(), kStop) != choices.end();
    const TokenId token =
        may_stop && !allowed.empty() ? kStop : choices[prng.Below(choices.size())];
    if (token == kStop) break;
    constraint.Push(token);
    drawn.push_back(token);
  }
  return drawn;
}

TEST(AnswerConstraintsTest, AnswersAreOfTheSchema) {
  const ApiModel model;
  const auto source = Source(model);
  ConstraintWish wish;
  wish.form = Form::kJsonSchema;
  wish.schema_json = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum":
      ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": false})";
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto constraint = source->Make(wish);
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::string text =
        model.Text(Draw(**constraint, model.facts.tokenizer->vocab_count(), seed, 200));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << text;
    EXPECT_TRUE(json["a"].is_number_integer()) << text;
    EXPECT_TRUE(json["b"] == "x" || json["b"] == "y") << text;
  }
}

TEST(AnswerConstraintsTest, CallsComeAfterReasoningWithinItsBudget) {
  const ApiModel model;
  const auto source = Source(model);
  const ApiCall call = model.Call(R"({"messages": [{"role": "user", "content": "x"}],
      "thinking_budget": 5, "tool_choice": "required", "parallel_tool_calls": false,
      "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type":
      "object", "properties": {"days": {"type": "integer"}}, "required": ["days"],
      "additionalProperties": false}}}]})");
  ASSERT_TRUE(model.constraints.last.has_value());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto constraint = source->Make(*model.constraints.last);
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::vector<TokenId> tokens =
        Draw(**constraint, model.facts.tokenizer->vocab_count(), seed, 300);
    const auto end =
        std::find(tokens.begin(), tokens.end(), *model.facts.tokenizer->FindToken("</think>"));
    ASSERT_NE(end, tokens.end());
    EXPECT_LE(end - tokens.begin(), 5);
    AnswerParser parser(call.format);
    std::vector<AnswerPart> parts;
    parser.Push(model.Text(tokens), parts);
    parser.Finish(parts);
    ASSERT_EQ(parser.call_count(), 1U) << model.Text(tokens);
    EXPECT_EQ(parts.back().call_name, "look_up");
    EXPECT_TRUE(nlohmann::json::parse(parts.back().text)["days"].is_number_integer());
  }
}

TEST(AnswerConstraintsTest, RefusalsComeThrough) {
  const ApiModel model;
  const auto source = Source(model);
  ConstraintWish wish;
  wish.form = Form::kJsonSchema;
  wish.schema_json = R"({"type": "object", "unheardOf": 1})";
  EXPECT_EQ(source->Make(wish).status().code(), absl::StatusCode::kUnimplemented);
  wish.schema_json = R"({"type": "nothing"})";
  EXPECT_FALSE(source->Make(wish).ok());
  EXPECT_FALSE(AnswerConstraints::Create(*model.facts.tokenizer, {}, 8192).ok());
}

}  // namespace
}  // namespace hearth
