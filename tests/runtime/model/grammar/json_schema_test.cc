// What schemas accept, refuse and are refused for; random walks against an independent check.
#include "runtime/model/grammar/json_schema.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/model/grammar/schema_compiler.h"
#include "runtime/model/grammar/schema_rules.h"
#include "tests/runtime/model/grammar/grammar_fixture.h"
#include "tests/runtime/model/grammar/schema_check.h"
#include "tests/runtime/model/grammar/test_random.h"

// schema_containers.cc, schema_document.cc and schema_scalars.cc are parts of the compiler.

namespace hearth::grammar {
namespace {

using ::testing::HasSubstr;

struct AcceptanceCase {
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

void Check(const AcceptanceCase& c, const GrammarOptions& options = {}) {
  const GrammarFixture fixture;
  const auto grammar = fixture.Compile(c.schema, options);
  Random random(1);
  for (const char* text : c.good) {
    EXPECT_EQ(WhyNot(c.schema, text), "") << c.schema << " with " << text;
    for (int tokenisation = 0; tokenisation < 20; ++tokenisation) {
      EXPECT_TRUE(fixture.Accepts(grammar, text, random)) << c.schema << " with " << text;
    }
  }
  for (const char* text : c.bad) {
    EXPECT_FALSE(fixture.Accepts(grammar, text, random)) << c.schema << " with " << text;
  }
}

TEST(JsonSchema, Scalars) {
  Check({R"({"type": "boolean"})", {"true", "false", "\n\ntrue"}, {"True", "", "truefalse", "1"}});
  Check({R"({"type": "null"})", {"null"}, {"nul", "nulll"}});
  Check({R"({"type": ["string", "null"]})", {"null", "\"a\""}, {"1", "a"}});
  Check({R"({"type": "string", "nullable": true})", {"null", "\"\""}, {"0"}});
  Check({R"({"type": "integer"})", {"0", "-12", "123000"}, {"1.5", "01", "", "-"}});
  Check({R"({"type": "number"})", {"0.5", "-1e10", "12"}, {".5", "1.", "\"1\""}});
  Check({R"({"type": "integer", "minimum": -3, "exclusiveMaximum": 12})",
         {"-3", "11", "0"},
         {"-4", "12", "123"}});
  Check({R"({"type": "number", "minimum": 0.5, "maximum": 2})",
         {"0.5", "2", "2.0", "1.99"},
         {"0.49", "2.01", "1e0", "-1"}});
  Check({R"({"type": "integer", "multipleOf": 12})", {"0", "24", "-12"}, {"1", "13"}});
}

TEST(JsonSchema, Texts) {
  Check({R"({"type": "string"})",
         {"\"\"", "\"a\\u00e9\\ud83d\\ude00\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\\\\\\"\""},
         {"\"", "\"a\"b", "\"\\ud83d\"", "\"\\ude00\"", "\"\n\""}});
  Check({R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\u0041\\n\\ud83d\\ude00\""},
         {"\"a\"", "\"abcd\"", "\"\xF0\x9F\x98\x80\""}});
  Check({R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""}});
  Check(
      {R"({"type": "string", "pattern": "^a+b*$"})", {"\"ab\"", "\"aaa\""}, {"\"b\"", "\"abc\""}});
  Check({R"({"type": "string", "pattern": "x[0-9]{2}"})", {"\"x12\"", "\"ab x123\""}, {"\"x1\""}});
  Check({R"({"type": "string", "format": "date"})", {"\"2024-02-29\""}, {"\"2023-02-29\""}});
  Check({R"({"enum": ["one", 2, null, "t\"o", 2.5]})",
         {"\"one\"", "2", "null", "\"t\\\"o\"", "2.5"},
         {"\"two\"", "3", "2.50", "\"on\""}});
  Check({R"({"const": {"k": [1, 2]}})", {R"({"k":[1,2]})"}, {R"({"k":[1]})", "{}"}});
  Check({R"({"type": "string", "enum": ["abc", "x", 5], "maxLength": 2})",
         {"\"x\""},
         {"\"abc\"", "5"}});
}

TEST(JsonSchema, Arrays) {
  Check({R"({"type": "array", "items": {"type": "integer"}})",
         {"[]", "[1]", "[1, 2,3]"},
         {"[1,]", "[,1]", "[1 ,2]", "[ 1]", "[1,  2]", "[\"a\"]", "["}});
  Check({R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
         {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"}});
  Check({R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}],
             "items": false, "minItems": 1})",
         {"[1]", "[1,true]"},
         {"[]", "[true]", "[1,true,1]"}});
  Check({R"({"type": "array", "items": [{"const": 1}], "additionalItems": {"const": 2}})",
         {"[]", "[1]", "[1,2,2]"},
         {"[2]", "[1,1]"}});
  Check({R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]", "[null]"}});
  Check({R"({"minItems": 1})", {"[{}]", "[[[]]]"}, {"[]", "1"}});
}

TEST(JsonSchema, Objects) {
  const char* schema = R"({"type": "object", "properties": {"a": {"type": "integer"},
      "b": {"type": "string"}, "list": {"type": "array"}}, "required": ["a"],
      "additionalProperties": false})";
  Check({schema,
         {R"({"a":1})", R"({"a": 1, "b": "x"})", R"({"a":1,"list":[{"x":null}]})"},
         {"{}", R"({"b":"x"})", R"({"b":"x","a":1})", R"({"a":1,"c":1})", R"({"a":1,})",
          R"({"a":1,"a":2})", R"({ "a":1})", R"({"a" :1})"}});
  Check({R"({"type": "object", "properties": {"a": {"const": 1}}, "required": ["z", "a"]})",
         {R"({"a":1,"z":null})", R"({"a":1,"z":{},"free":[]})"},
         {R"({"a":1})", R"({"z":1,"a":1})", R"({"a":1,"z":1,"a":2})",
          R"({"a":1,"z":1,"\u0061":2})"}});
  Check({R"({"properties": {"a": {}}, "additionalProperties": {"type": "boolean"}})",
         {"{}", R"({"x y":true})", R"({"a":7,"b":false})"},
         {R"({"b":7})", "[]", R"({"b":true,"a":1})"}});
  Check({R"({"type": "object", "minProperties": 1, "maxProperties": 2})",
         {R"({"a":1})", R"({"a":1,"b":{}})"},
         {"{}", R"({"a":1,"b":1,"c":1})"}});
  Check({R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 1},
             "c": {"const": 1}}, "additionalProperties": false, "minProperties": 2,
             "maxProperties": 2, "required": ["c"]})",
         {R"({"a":1,"c":1})", R"({"b":1,"c":1})"},
         {R"({"c":1})", R"({"a":1,"b":1,"c":1})", R"({"a":1,"b":1})"}});
}

TEST(JsonSchema, CombinationsAndReferences) {
  Check({R"({"anyOf": [{"type": "integer"}, {"type": "object", "required": ["a"]}]})",
         {"5", R"({"a":[]})"},
         {"\"a\"", "{}"}});
  Check({R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
             "additionalProperties": false, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
         {"{}"}});
  Check({R"({"allOf": [{"type": "object", "properties": {"a": {"type": "number"}}},
                       {"properties": {"a": {"minimum": 5}, "b": {"type": "null"}},
                        "required": ["a"], "additionalProperties": false}]})",
         {R"({"a":5.5})", R"({"a":5,"b":null})"},
         {R"({"a":4})", R"({"b":null})", R"({"a":5,"c":1})"}});
  Check({R"({"type": "array", "items": {"$ref": "#/$defs/tree"}, "$defs": {"tree":
            {"type": "object", "properties": {"v": {"type": "integer"},
             "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
             "required": ["v"], "additionalProperties": false}}})",
         {"[]", R"([{"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]}])"},
         {R"([{"kids":[]}])", R"([{"v":1,"kids":[1]}])"}});
  Check({R"({"type": "object", "properties": {"next": {"$ref": "#"},
             "x": {"$ref": "#/properties/y~1z"},
             "y/z": {"type": "boolean"}}, "additionalProperties": false})",
         {"{}", R"({"next":{"next":{"x":true}}})"},
         {R"({"next":null})"}});
  Check({R"({"oneOf": [{"const": 1}, {"const": 2}, false]})", {"1", "2"}, {"3"}});
  Check({R"({"allOf": [{"anyOf": [{"const": 1}, {"const": 2}]},
                       {"anyOf": [{"const": 2}, {"const": 3}]}]})",
         {"2"},
         {"1", "3"}});
  Check({"true", {"1", "{\"a\":[null,{\"b\":1.5}]}", "\"x\"", "[]"}, {"", "x", "[1"}});
  Check({"{}", {"false"}, {"nil"}});
}

TEST(JsonSchema, WhitespaceAndOrder) {
  const char* schema = R"({"type": "object", "properties": {"a": {"type": "array"},
      "b": {"const": 1}}, "required": ["b"], "additionalProperties": false})";
  GrammarOptions compact;
  compact.whitespace = JsonWhitespace::kNone;
  compact.leading_newlines = 0;
  Check({schema, {R"({"a":[1,2],"b":1})"}, {R"({"a": [],"b":1})", "\n{\"b\":1}"}}, compact);
  GrammarOptions indented;
  indented.whitespace = JsonWhitespace::kIndented;
  Check({schema,
         {"{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": 1\n}", R"({"a":[1, 2], "b":1})",
          "{\"b\":1\n}"},
         {"{\n\n\"b\":1}", "{\"b\"\n:1}"}},
        indented);
  GrammarOptions any;
  any.order = PropertyOrder::kAny;
  Check({schema,
         {R"({"b":1,"a":[]})", R"({"a":[],"b":1})", R"({"b":1})"},
         {R"({"b":1,"b":1})", R"({"a":[]})"}},
        any);
}

TEST(JsonSchema, RefusesByNameWithThePlace) {
  struct Case {
    const char* schema;
    absl::StatusCode code;
    const char* says;
  };
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const Case cases[] = {
      {R"({"properties": {"a": {"not": {}}}})", kUnimplemented, "#/properties/a/not: "},
      {R"({"if": {}})", kUnimplemented, "#/if: "},
      {R"({"patternProperties": {}})", kUnimplemented, "#/patternProperties: "},
      {R"({"type": "array", "uniqueItems": true})", kUnimplemented, "#/uniqueItems: "},
      {R"({"items": {"contains": {}}})", kUnimplemented, "#/items/contains: "},
      {R"({"typ": "object"})", kUnimplemented, "#/typ: "},
      {R"({"$ref": "http://example.com/x"})", kUnimplemented, "#/$ref: "},
      {R"({"$ref": "#/$defs/a"})", kInvalid, "#/$ref: \"#/$defs/a\" is not there"},
      {R"({"type": "string", "format": "hostnames"})", kUnimplemented, "#/format: format"},
      {R"({"a~b/c": 1})", kUnimplemented, "#/a~0b~1c: "},
      {R"j({"pattern": "(?=a)"})j", kUnimplemented, "#/pattern: look-ahead"},
      {R"j({"pattern": "("})j", kInvalid, "#/pattern: "},
      {R"({"type": "strin"})", kInvalid, "#/type: expected"},
      {R"({"type": []})", kInvalid, "#/type: "},
      {R"({"anyOf": []})", kInvalid, "#/anyOf: "},
      {R"({"anyOf": [3]})", kInvalid, "#/anyOf/0: expected a schema"},
      {R"({"required": "a"})", kInvalid, "#/required: "},
      {R"({"minItems": -1})", kInvalid, "#/minItems: "},
      {R"({"minLength": 1.5})", kInvalid, "#/minLength: "},
      {R"({"minimum": "1"})", kInvalid, "#/minimum: "},
      {R"({"multipleOf": 0.1})", kUnimplemented, "#/multipleOf: "},
      {R"({"nullable": true})", kUnimplemented, "#/nullable: "},
      {R"({"minProperties": 2})", kUnimplemented, "minProperties of 2"},
      {R"({"enum": [{"a": 1}], "required": ["a"]})", kUnimplemented, "#/enum/0: "},
      {"[", kInvalid, "not JSON"},
      {"3", kInvalid, "#: expected a schema"},
      {"false", kInvalid, "no value"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", kInvalid, "no value"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})", kInvalid, "no value"},
      {R"({"type": "string", "enum": [1]})", kInvalid, "no value"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", kInvalid,
       "no value of finite length"},
      {R"({"$ref": "#"})", kInvalid, "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", kInvalid, "refers to itself"},
      {R"({"type": "object", "minProperties": 2, "maxProperties": 1,
           "properties": {"a": {}, "b": {}},
           "additionalProperties": false})",
       kInvalid, "no value"},
      {R"({"type": "object", "required": ["a"], "properties": {"b": {}},
           "additionalProperties": false})",
       kInvalid, "no value"},
  };
  const auto leaves = CommonLeaves::Make();
  for (const Case& c : cases) {
    const absl::Status status = CompileJsonSchema(c.schema, *leaves, {}).status();
    EXPECT_EQ(status.code(), c.code) << c.schema << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.schema;
  }
}

TEST(JsonSchema, Limits) {
  const auto leaves = CommonLeaves::Make();
  const auto code = [&](const std::string& schema) {
    return CompileJsonSchema(schema, *leaves, {}).status().code();
  };
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(code("\"" + std::string(kSchemaBytesMax, 'a') + "\""), kExhausted);
  std::string deep;
  for (int i = 0; i < 70; ++i) deep += "{\"items\":";
  EXPECT_EQ(code(deep + "{}" + std::string(70, '}')), kExhausted);
  std::string names = "{\"properties\":{";
  for (int i = 0; i < 1001; ++i) names += (i ? ",\"" : "\"") + std::to_string(i) + "\":{}";
  EXPECT_EQ(code(names + "}}"), kExhausted);
  // Two to the power of twelve combinations of alternatives, of which none is like another.
  std::string many = "{\"allOf\":[";
  for (int i = 0; i < 16; ++i) {
    many += std::string(i ? "," : "") + "{\"anyOf\":[{\"required\":[\"a" + std::to_string(i) +
            "\"]},{\"required\":[\"b" + std::to_string(i) + "\"]}]}";
  }
  EXPECT_EQ(code(many + "]}"), kExhausted);
  std::string chain = "{\"$ref\":\"#/$defs/0\",\"$defs\":{";
  for (int i = 0; i < 3000; ++i) {
    chain += "\"" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/" + std::to_string(i + 1) + "\"},";
  }
  EXPECT_EQ(code(chain + "\"3000\":{}}}"), kExhausted);
  EXPECT_EQ(code(R"({"type": "string", "pattern": "(a|b)*a(a|b){14}"})"), kExhausted);
}

// Whatever a walk over allowed tokens writes satisfies the schema, and can be written in other
// tokens too; no walk comes to a dead end.
TEST(JsonSchema, RandomWalksThroughRandomSchemas) {
  const GrammarFixture fixture;
  Random random(20);
  int compiled = 0;
  int ended = 0;
  for (int round = 0; round < 700; ++round) {
    const std::string schema = RandomSchema(random);
    GrammarOptions options;
    options.whitespace = static_cast<JsonWhitespace>(random() % 3);
    options.order = random() % 3 == 0 ? PropertyOrder::kAny : PropertyOrder::kSchema;
    const auto grammar = CompileJsonSchema(schema, fixture.leaves(), options);
    if (!grammar.ok()) {
      EXPECT_THAT(std::string(grammar.status().message()),
                  testing::AnyOf(HasSubstr("no value"), HasSubstr("refers to itself"),
                                 HasSubstr("enum or const beside"), HasSubstr("minProperties of")))
          << schema;
      continue;
    }
    ++compiled;
    for (int walk = 0; walk < 6; ++walk) {
      const auto constraint = fixture.Constrain(*grammar);
      const auto text = fixture.Walk(*constraint, random, 10 + random() % 80);
      ASSERT_FALSE(testing::Test::HasFailure()) << schema;
      if (!text.has_value()) continue;
      ++ended;
      ASSERT_EQ(WhyNot(schema, *text), "") << schema << "\nwrites " << *text;
      ASSERT_TRUE(fixture.Accepts(*grammar, *text, random)) << schema << "\nwrites " << *text;
    }
  }
  EXPECT_GT(compiled, 400);
  EXPECT_GT(ended, compiled * 5);
}

}  // namespace
}  // namespace hearth::grammar
