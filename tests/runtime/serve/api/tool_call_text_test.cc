// Calls of tools as models write them, and their arguments as the tools' schemas type them.
#include "runtime/serve/api/tool_call_text.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serve/api/tool_set.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

constexpr char kSchema[] = R"({"type": "object", "properties": {
    "text": {"type": "string"}, "count": {"type": "integer"}, "rate": {"type": "number"},
    "on": {"type": "boolean"}, "list": {"type": "array"}, "map": {"type": "object"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "either": {"type": ["string", "integer"]}, "color": {"enum": ["red", "blue"]},
    "any": {}, "ref": {"$ref": "#/$defs/x"}, "soft": {"type": "integer", "nullable": true}}})";

ToolSet Tools() {
  ToolSet tools;
  tools.tools.push_back(
      {.name = "f", .parameters_json = kSchema, .arguments = ArgumentsOf(kSchema)});
  return tools;
}

std::string Argument(const std::string& name, const std::string& value) {
  const auto call = ReadToolCall(
      "\n<function=f>\n<parameter=" + name + ">\n" + value + "\n</parameter>\n</function>\n",
      Tools());
  return call.has_value() ? call->arguments_json : "no call";
}

TEST(ToolCallTextTest, ArgumentsAreTypedByTheSchema) {
  EXPECT_EQ(Argument("text", "3"), R"({"text": "3"})");
  EXPECT_EQ(Argument("text", "{\"a\": 1}"), R"({"text": "{\"a\": 1}"})");
  EXPECT_EQ(Argument("text", "\n  two\nlines \n"), R"({"text": "\n  two\nlines \n"})");
  EXPECT_EQ(Argument("text", ""), R"({"text": ""})");
  EXPECT_EQ(Argument("count", " 3 "), R"({"count": 3})");
  EXPECT_EQ(Argument("count", "123456789012345678901234567890"),
            R"({"count": 123456789012345678901234567890})");
  EXPECT_EQ(Argument("rate", "2.50"), R"({"rate": 2.50})");
  EXPECT_EQ(Argument("on", "true"), R"({"on": true})");
  EXPECT_EQ(Argument("on", "False"), R"({"on": false})");
  EXPECT_EQ(Argument("list", "[1, \"a\"]"), R"({"list": [1, "a"]})");
  EXPECT_EQ(Argument("map", "{\"k\": null}"), R"({"map": {"k": null}})");
  EXPECT_EQ(Argument("maybe", "null"), R"({"maybe": null})");
  EXPECT_EQ(Argument("maybe", "7"), R"({"maybe": "7"})");
  EXPECT_EQ(Argument("either", "7"), R"({"either": 7})");
  EXPECT_EQ(Argument("either", "\"q\""), R"({"either": "\"q\""})");
  EXPECT_EQ(Argument("color", "red"), R"({"color": "red"})");
  EXPECT_EQ(Argument("any", "7"), R"({"any": 7})");
  EXPECT_EQ(Argument("any", "plain words"), R"({"any": "plain words"})");
  EXPECT_EQ(Argument("ref", "[1]"), R"({"ref": [1]})");
  EXPECT_EQ(Argument("soft", "None"), R"({"soft": null})");
  EXPECT_EQ(Argument("unlisted", "x"), R"({"unlisted": "x"})");
}

TEST(ToolCallTextTest, TextThatIsNotOfItsTypeStaysAString) {
  EXPECT_EQ(Argument("count", "three"), R"({"count": "three"})");
  EXPECT_EQ(Argument("map", "{broken"), R"({"map": "{broken"})");
  EXPECT_EQ(Argument("rate", "NaN"), R"({"rate": "NaN"})");
}

TEST(ToolCallTextTest, WindowsLineBreaksAndNone) {
  const auto call =
      ReadToolCall("<function=f><parameter=text>\r\na\r\n</parameter></function>", Tools());
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->arguments_json, R"({"text": "a"})");
  EXPECT_EQ(ReadToolCall("<function=f></function>", Tools())->arguments_json, "{}");
}

TEST(ToolCallTextTest, HermesForm) {
  EXPECT_EQ(ReadToolCall(R"({"name": "f", "arguments": {"a": 1}})", Tools())->arguments_json,
            R"({"a":1})");
  EXPECT_EQ(ReadToolCall(R"({"arguments": "{\"a\": 1}", "name": "f"})", Tools())->arguments_json,
            R"({"a":1})");
  EXPECT_EQ(ReadToolCall(R"({"name": "f"})", Tools())->arguments_json, "{}");
  for (const char* text :
       {R"({"name": "g", "arguments": {}})", R"({"arguments": {}})", R"({"name": 1})",
        R"({"name": "f", "arguments": [1]})", R"({"name": "f", "arguments": "[1]"})",
        R"({"name": "f", "other": 1})", R"({"name": "f"} x)"}) {
    EXPECT_FALSE(ReadToolCall(text, Tools()).has_value()) << text;
  }
}

TEST(ToolCallTextTest, WhetherItMayBecomeACallIsNeverTakenBack) {
  const ToolSet tools = Tools();
  const std::string call = " \n<function=f>\n<parameter=text>\nx\n</parameter>\n</function>\n";
  for (size_t i = 0; i <= call.size(); ++i) {
    EXPECT_TRUE(MayBecomeToolCall(call.substr(0, i), tools)) << i;
  }
  for (const char* text : {"x", "<functions", "<function=g", "<function=ff>", "<function=f>x",
                           "<function=f><param>", "</tool_call>"}) {
    EXPECT_FALSE(MayBecomeToolCall(text, tools)) << text;
    EXPECT_FALSE(MayBecomeToolCall(std::string(text) + ">\n</function>", tools)) << text;
  }
}

TEST(ToolCallTextTest, NamesOfTools) {
  EXPECT_TRUE(IsToolName("get_weather-2"));
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("<f>"), std::string("a.b"),
        std::string(65, 'a'), std::string("\xC3\xA9"), std::string("a\0", 2)}) {
    EXPECT_FALSE(IsToolName(name));
  }
}

TEST(ToolCallTextTest, UnusualSchemasGiveNoArguments) {
  for (const char* schema : {"", "{", "[]", "true", R"({"properties": []})", R"({"type": 1})"}) {
    EXPECT_TRUE(ArgumentsOf(schema).empty()) << schema;
  }
  EXPECT_EQ(ArgumentsOf(R"({"properties": {"a": true, "b": {"type": [3]}}})").size(), 2U);
}

}  // namespace
}  // namespace hearth
