// JSON in and out: order, numbers, escapes, refusals.
#include "runtime/model/chat/jinja_json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth::jinja {
namespace {

using ::testing::HasSubstr;

std::string RoundTrip(std::string_view text, const JsonFormat& format = {}) {
  const auto value = ParseJson(text, "input");
  if (!value.ok()) return "error: " + std::string(value.status().message());
  const auto out = DumpJson(*value, format);
  return out.ok() ? *out : "error: " + std::string(out.status().message());
}

TEST(JinjaJsonTest, KeepsKeyOrderAndTheLastOfEqualKeys) {
  EXPECT_EQ(RoundTrip(R"({"z":1,"a":2,"z":3})"), R"({"z": 3, "a": 2})");
}

TEST(JinjaJsonTest, PrintsNumbersAsPythonDoes) {
  EXPECT_EQ(RoundTrip("[0, -1, 1.0, 1e2, 1.5e300, 1e16, 123456789012345.6, 0.0001, 0.00001, -0.0]"),
            "[0, -1, 1.0, 100.0, 1.5e+300, 1e+16, 123456789012345.6, 0.0001, 1e-05, -0.0]");
  EXPECT_EQ(RoundTrip("[9223372036854775807, 9223372036854775808, 18446744073709551616]"),
            "[9223372036854775807, 9223372036854775808, 18446744073709551616]");
}

TEST(JinjaJsonTest, EscapesAsJsonDumpsDoes) {
  EXPECT_EQ(RoundTrip(R"(["\u0000\u001f\b\f\n\r\t\"\\\/\u007f", "\u00e9\ud83d\ude00"])"),
            "[\"\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\/\x7F\", \"\xC3\xA9\xF0\x9F\x98\x80\"]");
  EXPECT_EQ(RoundTrip(R"(["\u00e9\ud83d\ude00"])", {.indent = std::nullopt, .ensure_ascii = true}),
            R"(["\u00e9\ud83d\ude00"])");
}

TEST(JinjaJsonTest, IndentsAndSorts) {
  JsonFormat format{.indent = std::nullopt, .sort_keys = true};
  format.indent.emplace(2, ' ');
  format.item_separator.assign(1, ',');
  EXPECT_EQ(RoundTrip(R"({"b": [1, []], "a": {}})", format),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    []\n  ]\n}");
}

TEST(JinjaJsonTest, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", "[1", "[1,]", "{\"a\" 1}", "nul", "[1] 2", "\"\\ud800\"", "\"\xFF\""}) {
    EXPECT_THAT(RoundTrip(text), HasSubstr("error: input: not JSON")) << text;
  }
}

}  // namespace
}  // namespace hearth::jinja
