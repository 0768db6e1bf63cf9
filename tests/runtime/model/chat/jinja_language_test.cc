// The language piece by piece: small templates against what Python's Jinja made of them
// (tests/golden/chat/snippets.json), and rules that Python cannot show.
#include <string>

#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "runtime/model/chat/jinja_text.h"
#include "tests/runtime/model/chat/jinja_rendering.h"

namespace hearth::jinja {
namespace {

TEST(JinjaLanguageTest, SnippetsRenderAsInPythonOrAreRefusedByBoth) {
  const auto text =
      ReadFile(std::string(HEARTH_SOURCE_DIR) + "/tests/golden/chat/snippets.json", 4 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto golden = ParseJson(*text, "snippets.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  ASSERT_GT(golden->AsSequence().size(), 100u);
  for (const Value& test_case : golden->AsSequence()) {
    const std::string& source = test_case.AsDict().FindString("template")->AsString();
    const Value* output = test_case.AsDict().FindString("output");
    const absl::StatusOr<std::string> rendered = RenderText(source);
    if (output == nullptr) {
      EXPECT_FALSE(rendered.ok()) << source << "\nrendered: " << *rendered;
    } else if (rendered.ok()) {
      EXPECT_EQ(*rendered, output->AsString()) << source;
    } else {
      ADD_FAILURE() << source << "\n" << rendered.status();
    }
  }
}

TEST(JinjaLanguageTest, StrftimeNowPrintsTheGivenTime) {
  const auto parsed =
      ParseTemplate("{{ strftime_now('%A %d %b %Y %H:%M:%S %% %j %y %I %p') }}", "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  RenderInputs inputs;
  inputs.now = absl::CivilSecond(2024, 2, 29, 15, 4, 5);
  const auto text = RenderTemplate(*parsed, inputs);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "Thursday 29 Feb 2024 15:04:05 % 060 24 03 PM");
}

TEST(JinjaLanguageTest, StrftimeNowRefusesDirectivesThatNeedATimeZone) {
  const auto parsed = ParseTemplate("{{ strftime_now('%Z') }}", "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  RenderInputs inputs;
  inputs.now = absl::CivilSecond(2024, 2, 29, 15, 4, 5);
  EXPECT_EQ(RenderTemplate(*parsed, inputs).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(JinjaLanguageTest, AGeneratorFailsOnlyWhenItsItemsAreTaken) {
  EXPECT_EQ(RenderOrError("{% set g = [1] | map('nope') %}{{ 'fine' }}"), "fine");
  EXPECT_EQ(RenderOrError("{% set g = [1] | map('nope') %}{{ g | list }}"),
            "error: t.jinja:1: no filter named 'nope'");
}

TEST(JinjaLanguageTest, RenderingTwiceGivesTheSameText) {
  const auto parsed = ParseTemplate(
      "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + 1 %}{% endfor %}"
      "{{ ns.n }}",
      "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (int i = 0; i < 2; ++i) {
    const auto text = RenderTemplate(*parsed, {});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, "3");
  }
}

TEST(JinjaTextTest, Utf8IsCheckedStrictly) {
  EXPECT_TRUE(IsValidUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  for (const char* bad :
       {"\x80", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF0\x9F\x98", "\xFF"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

TEST(JinjaTextTest, FloatsPrintTheShortestDigitsThatReadBack) {
  EXPECT_EQ(FloatRepr(0.1), "0.1");
  EXPECT_EQ(FloatRepr(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(FloatRepr(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(FloatRepr(1e16), "1e+16");
  EXPECT_EQ(FloatRepr(1.5e-7), "1.5e-07");
  EXPECT_EQ(FloatRepr(5e-324), "5e-324");
  EXPECT_EQ(FloatRepr(-123.456), "-123.456");
}

}  // namespace
}  // namespace hearth::jinja
