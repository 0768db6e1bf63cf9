// What the API finds out about a model: sampling defaults, and what its template can do.
#include "runtime/serve/api/model_facts.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelFactsTest, ReadsFlashletsGenerationConfig) {
  const auto defaults =
      ParseGenerationConfig(ReadSource("profiles/flashlet/generation_config.json"), "g.json");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, 1);
  EXPECT_EQ(defaults->top_k, 20U);
  EXPECT_FLOAT_EQ(defaults->top_p, 0.95F);
  EXPECT_EQ(defaults->repetition_penalty, 1);
}

TEST(ModelFactsTest, GenerationConfigsThatSaySomethingElse) {
  EXPECT_EQ(ParseGenerationConfig(R"({"do_sample": false, "top_k": 5})", "g")->temperature, 0);
  EXPECT_EQ(ParseGenerationConfig(R"({"eos_token_id": 1})", "g")->temperature, 1);
  EXPECT_EQ(ParseGenerationConfig(R"({"do_sample": true, "min_p": 0.1})", "g")->min_p, 0.1F);
  for (const char* text : {R"({"do_sample": true, "temperature": -1})", R"({"do_sample": "yes"})",
                           R"({"do_sample": true, "top_p": 2})", "[]", "{"}) {
    const auto defaults = ParseGenerationConfig(text, "g.json");
    ASSERT_FALSE(defaults.ok()) << text;
    EXPECT_THAT(std::string(defaults.status().message()), HasSubstr("g.json: "));
  }
}

TEST(ModelFactsTest, FindsOutWhatATemplateCan) {
  const ApiModel qwen;
  EXPECT_TRUE(qwen.facts.abilities.tools);
  EXPECT_TRUE(qwen.facts.abilities.system);
  EXPECT_TRUE(qwen.facts.abilities.reasoning);
  EXPECT_TRUE(qwen.facts.abilities.reasoning_switch);
  EXPECT_THAT(qwen.facts.abilities.efforts, ElementsAre("low", "medium", "xhigh"));
  const ApiModel plain(ApiModel::Template::kPlain);
  EXPECT_FALSE(plain.facts.abilities.tools);
  EXPECT_TRUE(plain.facts.abilities.system);
  EXPECT_FALSE(plain.facts.abilities.reasoning);
  EXPECT_FALSE(plain.facts.abilities.reasoning_switch);
  EXPECT_THAT(plain.facts.abilities.efforts, IsEmpty());
}

TEST(ModelFactsTest, NamesOfTheModel) {
  ApiModel model;
  model.facts.aliases = {"gpt-4"};
  EXPECT_TRUE(NamesModel(model.facts, "flashlet"));
  EXPECT_TRUE(NamesModel(model.facts, "gpt-4"));
  EXPECT_FALSE(NamesModel(model.facts, "other"));
  const auto error = model.Error(R"({"model": "other", "messages": []})");
  EXPECT_EQ(error["status"], 404);
  EXPECT_EQ(error["code"], "model_not_found");
  EXPECT_EQ(error["param"], "model");
  model.facts.any_name = true;
  EXPECT_TRUE(NamesModel(model.facts, "other"));
}

}  // namespace
}  // namespace hearth
