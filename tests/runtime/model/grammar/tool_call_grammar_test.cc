// Which tool calls a grammar of tools lets through.
#include "runtime/model/grammar/tool_call_grammar.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "tests/runtime/model/grammar/grammar_fixture.h"
#include "tests/runtime/model/grammar/test_random.h"

namespace hearth::grammar {
namespace {

using ::testing::HasSubstr;

const std::vector<ToolSignature>& Tools() {
  static const std::vector<ToolSignature> kTools = {
      {"weather", R"({"type": "object", "properties": {"city": {"type": "string"},
          "days": {"type": "integer", "minimum": 1, "maximum": 14},
          "units": {"enum": ["c", "f"]}}, "required": ["city"]})"},
      {"note", R"({"type": "object", "properties": {"tags": {"type": "array",
          "items": {"type": "string"}}, "title": {"type": "string", "maxLength": 5},
          "key": {"type": "string", "pattern": "^[a-z]{2}$"}}, "required": ["tags"]})"},
      {"now", R"({"type": "object", "properties": {}})"},
  };
  return kTools;
}

bool Accepts(const std::string& text, bool several = false,
             const std::vector<ToolSignature>& tools = Tools()) {
  const GrammarFixture fixture;
  const auto grammar = CompileToolCalls(tools, several, {}, fixture.leaves(), {});
  HEARTH_CHECK(grammar.ok());
  Random random(3);
  bool accepts = true;
  for (int i = 0; i < 8; ++i) accepts = accepts && fixture.Accepts(*grammar, text, random);
  return accepts;
}

std::string Call(const std::string& function, const std::string& parameters) {
  return "<tool_call>\n<function=" + function + ">\n" + parameters + "</function>\n</tool_call>";
}

std::string Parameter(const std::string& name, const std::string& value) {
  return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
}

TEST(ToolCallGrammar, AcceptsCallsOfTheTools) {
  EXPECT_TRUE(Accepts(Call("weather", Parameter("city", "New York"))));
  EXPECT_TRUE(Accepts("\n\n" + Call("weather", Parameter("city", ""))));
  EXPECT_TRUE(Accepts(Call("weather", Parameter("city", "two\nlines \"quoted\" < &") +
                                          Parameter("days", "14") + Parameter("units", "f"))));
  EXPECT_TRUE(Accepts(Call("note", Parameter("tags", R"(["a", "b\n"])") +
                                       Parameter("title", "h\xC3\xA9") + Parameter("key", "ab"))));
  EXPECT_TRUE(Accepts(Call("now", "")));
}

TEST(ToolCallGrammar, RefusesAllElse) {
  for (const std::string& bad :
       {Call("weather", ""), Call("storm", ""), Call("weather", Parameter("days", "3")),
        Call("weather", Parameter("city", "x") + Parameter("days", "15")),
        Call("weather", Parameter("city", "x") + Parameter("units", "\"c\"")),
        Call("weather", Parameter("city", "x") + Parameter("other", "y")),
        Call("weather", Parameter("city", "x") + Parameter("city", "y")),
        Call("weather", Parameter("city", "a</function>b")), Call("note", Parameter("tags", "a")),
        Call("note", Parameter("tags", "[]") + Parameter("title", "too long")),
        Call("note", Parameter("tags", "[]") + Parameter("key", "ABC")),
        Call("now", Parameter("city", "x")), std::string("text"),
        Call("now", "") + "\n" + Call("now", "")}) {
    EXPECT_FALSE(Accepts(bad)) << bad;
  }
}

TEST(ToolCallGrammar, SeveralCallsOneAfterAnother) {
  const std::string one = Call("now", "");
  EXPECT_TRUE(Accepts(one, true));
  EXPECT_TRUE(Accepts(one + "\n" + Call("weather", Parameter("city", "x")) + "\n" + one, true));
  EXPECT_FALSE(Accepts(one + one, true));
  EXPECT_FALSE(Accepts(one + "\n", true));
  std::string many = one;
  for (int i = 0; i < 200; ++i) many += "\n" + one;  // no deeper for being longer
  EXPECT_TRUE(Accepts(many, true));
}

TEST(ToolCallGrammar, AToolWithoutASchemaTakesAnyText) {
  const std::vector<ToolSignature> tools = {{"f", ""}};
  EXPECT_TRUE(Accepts(Call("f", ""), false, tools));
  EXPECT_TRUE(Accepts(Call("f", Parameter("query", "some text")), false, tools));
  EXPECT_FALSE(Accepts(Call("f", Parameter("", "x")), false, tools));
}

TEST(ToolCallGrammar, MarksThatAreTokensAreWrittenAsTokens) {
  const GrammarFixture fixture;
  const TokenId token = fixture.stop();  // any token without bytes serves
  const auto grammar =
      CompileToolCalls(Tools(), false, {.open = token, .close = token}, fixture.leaves(), {});
  ASSERT_TRUE(grammar.ok());
  GrammarConstraint constraint(*grammar, fixture.trie(), fixture.Sources(), {TokenId{0}}, 1_MiB);
  EXPECT_TRUE(IsSet(constraint.Allowed(), token));
  EXPECT_FALSE(IsSet(constraint.Allowed(), '<'));
  constraint.Push(token);
  for (const char c : std::string("\n<function=now>\n</function>\n")) {
    ASSERT_TRUE(IsSet(constraint.Allowed(), c));
    constraint.Push(c);
  }
  EXPECT_EQ(TokensOf(constraint.Allowed()), std::vector<TokenId>{token});
  EXPECT_FALSE(constraint.Complete());
  constraint.Push(token);
  EXPECT_TRUE(constraint.Complete());
}

TEST(ToolCallGrammar, WalksAreCalls) {
  const GrammarFixture fixture;
  Random random(8);
  const auto grammar = CompileToolCalls(Tools(), true, {}, fixture.leaves(), {});
  ASSERT_TRUE(grammar.ok());
  int ended = 0;
  for (int i = 0; i < 60; ++i) {
    const auto constraint = fixture.Constrain(*grammar);
    const auto text = fixture.Walk(*constraint, random, 200);
    ASSERT_FALSE(testing::Test::HasFailure());
    if (!text.has_value()) continue;
    ++ended;
    EXPECT_TRUE(fixture.Accepts(*grammar, *text, random)) << *text;
    EXPECT_TRUE(text->ends_with("</function>\n</tool_call>")) << *text;
  }
  EXPECT_GT(ended, 30);
}

TEST(ToolCallGrammar, ErrorsNameTheTool) {
  const GrammarFixture fixture;
  const auto status = [&](const ToolSignature& tool) {
    return CompileToolCalls({&tool, 1}, false, {}, fixture.leaves(), {}).status();
  };
  EXPECT_THAT(std::string(status({"f", R"({"type": "array"})"}).message()),
              HasSubstr("f: #: expected the schema of an object"));
  EXPECT_THAT(std::string(status({"f", R"({"properties": {"a": {"not": 1}}})"}).message()),
              HasSubstr("f: #/properties/a/not"));
  EXPECT_EQ(status({"f g", ""}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status({"f", R"({"properties": {"a>b": {}}})"}).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CompileToolCalls({}, false, {}, fixture.leaves(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::grammar
