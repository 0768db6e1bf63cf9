// The JSON front: what it refuses, and that refusals hold no bytes of the input.
#include "runtime/serve/api/strict_json.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serve/api/fields.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Complaint(std::string_view text, const JsonLimits& limits = {}) {
  const auto json = ParseStrictJson(text, "the body", limits);
  return json.ok() ? "accepted" : std::string(json.status().message());
}

TEST(StrictJsonTest, ReadsJsonInTheOrderOfItsMembers) {
  const auto json =
      ParseStrictJson(R"( {"b": [1, -2, 3.5, "x", null, true], "a": {"c": ""}} )", "");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(DumpJson(*json), R"({"b":[1,-2,3.5,"x",null,true],"a":{"c":""}})");
}

TEST(StrictJsonTest, KeepsEscapedNulAndPairsOfSurrogates) {
  const auto json = ParseStrictJson(R"(["a\u0000b", "\ud83e\udd2a"])", "");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)[0], std::string("a\0b", 3));
  EXPECT_EQ((*json)[1], "\xF0\x9F\xA4\xAA");
}

TEST(StrictJsonTest, RefusesWhatIsNotJson) {
  for (const char* text : {"{",
                           "}",
                           "{\"a\"}",
                           "[1,]",
                           "{\"a\":1,}",
                           "nul",
                           "'a'",
                           "{\"a\":NaN}",
                           "{\"a\":Infinity}",
                           "[01]",
                           "[+1]",
                           "[.5]",
                           "[1.]",
                           "[0x1]",
                           "{a:1}",
                           "[1] [2]",
                           "[\"\\x\"]",
                           "[\"\n\"]",
                           "// c\n1",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800x\"",
                           "\"\\ud800\\ud800\""}) {
    EXPECT_THAT(Complaint(text), HasSubstr("not JSON from byte")) << text;
  }
  EXPECT_THAT(Complaint(""), HasSubstr("empty"));
  EXPECT_THAT(Complaint("  "), HasSubstr("not JSON"));
}

TEST(StrictJsonTest, RefusesNulBytesWhereverTheyStand) {
  for (const std::string& text :
       {std::string("{}\0", 3), std::string("{}\0{\"a\":1}", 10), std::string("[\"a\0\"]", 6)}) {
    EXPECT_THAT(Complaint(text), HasSubstr("NUL byte"));
  }
}

TEST(StrictJsonTest, RefusesBrokenUtf8InValuesAndNames) {
  for (const char* text : {"[\"\xFF\"]", "{\"\xC3\": 1}", "[\"\xED\xA0\x80\"]", "[\"\xC0\x80\"]",
                           "[\"\xF4\x90\x80\x80\"]", "[\"\xE2\x82\"]"}) {
    EXPECT_EQ(Complaint(text), "the body: not UTF-8");
  }
}

TEST(StrictJsonTest, NamesThePlaceOfARepeatedName) {
  EXPECT_THAT(Complaint(R"({"messages": [1, {"role": 1, "role": 2}]})"),
              HasSubstr("messages[1].role: occurs twice"));
  EXPECT_THAT(Complaint(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("a: occurs twice"));
}

TEST(StrictJsonTest, EchoesNoBytesOfTheBody) {
  const std::string evil = "{\"<script>\": 1, \"<script>\": 2}";
  EXPECT_THAT(Complaint(evil), Not(HasSubstr("script")));
  EXPECT_THAT(Complaint(evil), HasSubstr("(unprintable): occurs twice"));
  EXPECT_THAT(Complaint("{\"a\": secretword}"), Not(HasSubstr("secretword")));
  const auto json = ParseStrictJson("{\"na\\nme\": 1}", "");
  ASSERT_TRUE(json.ok());
  const absl::Status status = Fields::Of(*json, "")->Only({});
  EXPECT_THAT(std::string(status.message()), HasSubstr("(unprintable)"));
}

TEST(StrictJsonTest, NumbersOutOfRangeNameTheirField) {
  EXPECT_THAT(Complaint(R"({"temperature": 1e999})"),
              HasSubstr("temperature: the number is out of range"));
  EXPECT_THAT(Complaint(R"({"temperature": NaN})"), HasSubstr("temperature: not JSON"));
}

TEST(StrictJsonTest, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(Complaint(nested(64)), "accepted");
  EXPECT_THAT(Complaint(nested(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(Complaint(nested(1'000'000)), HasSubstr("nested deeper than 64 levels"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(Complaint(objects), HasSubstr("nested deeper than 64 levels"));
}

TEST(StrictJsonTest, BytesAndValuesAreBounded) {
  EXPECT_EQ(Complaint("[1,2,3]", {.bytes_max = 7}), "accepted");
  const auto big = ParseStrictJson("[1,2,3]", "the body", {.bytes_max = 6});
  EXPECT_EQ(big.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MakeErrorReply(Dialect::kOpenAiChat, big.status()).http_status, 413);
  EXPECT_EQ(Complaint("[1,2,3]", {.values_max = 4}), "accepted");
  EXPECT_THAT(Complaint("[1,2,3]", {.values_max = 3}), HasSubstr("more than 3 values"));
  std::string many = "[0";
  for (int i = 0; i < (1 << 20); ++i) many += ",0";
  EXPECT_THAT(Complaint(many + "]"), HasSubstr("more than 1048576 values"));
}

TEST(StrictJsonTest, ManyMembersTakeNoQuadraticTime) {
  std::string text = "{\"n\":0";
  for (int i = 0; i < 200'000; ++i) text += ",\"" + std::to_string(i) + "\":0";
  EXPECT_EQ(Complaint(text + "}"), "accepted");
}

TEST(StrictJsonTest, WritesWhatIsNotFiniteAsNullAndWhatIsBrokenAsReplacement) {
  Json json = Json::array();
  json.push_back(std::numeric_limits<double>::quiet_NaN());
  json.push_back(std::numeric_limits<double>::infinity());
  json.push_back("a\xFF");
  EXPECT_EQ(DumpJson(json), "[null,null,\"a\xEF\xBF\xBD\"]");
}

TEST(FieldsTest, WrongTypesNameFieldAndBoth) {
  const auto json = ParseStrictJson(R"({"t": "x", "n": 1.5, "o": [], "z": null, "big":
      18446744073709551615})",
                                    "");
  ASSERT_TRUE(json.ok());
  const auto fields = Fields::Of(*json, "outer");
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(fields->Bool("t").status().message(),
            "outer.t: expected true or false, found a string");
  EXPECT_EQ(fields->Integer("n", {0, 5}).status().message(),
            "outer.n: expected an integer from 0 to 5, found a number");
  EXPECT_EQ(fields->Object("o").status().message(), "outer.o: expected an object, found a list");
  EXPECT_EQ(fields->Integer("big", {0, INT64_MAX}).status().message(),
            "outer.big: expected an integer from 0 to 9223372036854775807, found a greater one");
  EXPECT_EQ(fields->Text("z")->has_value(), false);
  EXPECT_FALSE(fields->RequiredText("z").ok());
  EXPECT_EQ(Fields::Of(Json::array(), "").status().message(),
            "the body: expected an object, found a list");
}

}  // namespace
}  // namespace hearth
