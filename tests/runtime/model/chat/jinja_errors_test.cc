// What the interpreter refuses, with the line that it names.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/model/chat/jinja_rendering.h"

namespace hearth::jinja {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JinjaParseErrorTest, UnknownFiltersTestsAndTagsAreRefusedByLine) {
  EXPECT_THAT(RenderOrError("a\n\n{{ x | xyz }}"),
              StartsWith("error: t.jinja:3: unknown filter 'xyz'; known filters are abs, "));
  EXPECT_THAT(RenderOrError("\n{% if false %}{{ x | pprint }}{% endif %}"),
              StartsWith("error: t.jinja:2: unknown filter 'pprint'"));
  EXPECT_THAT(RenderOrError("{% if x is\nshiny %}{% endif %}"),
              StartsWith("error: t.jinja:1: unknown test 'shiny'; known tests are boolean, "));
  EXPECT_THAT(RenderOrError("\n\n{% include 'x' %}"),
              StartsWith("error: t.jinja:3: unknown tag 'include'"));
}

TEST(JinjaParseErrorTest, ConstructsThatAreNotSupportedAreRefusedByLine) {
  EXPECT_THAT(RenderOrError("\n{{ 'a'.format(1) }}"),
              HasSubstr("t.jinja:2: the method 'format' is not supported"));
  EXPECT_THAT(RenderOrError("{% for x in y recursive %}{% endfor %}"),
              HasSubstr("recursive loops are not supported"));
  EXPECT_THAT(RenderOrError("{{ f(*args) }}"), HasSubstr("*args or **kwargs"));
  EXPECT_THAT(RenderOrError("{{ cycler('a') }}"), HasSubstr("'cycler' is not supported"));
  EXPECT_THAT(RenderOrError("{{ x[1:2, 3] }}"), HasSubstr("several parts"));
  EXPECT_THAT(RenderOrError("{{ '\\N{BULLET}' }}"), HasSubstr("escape"));
  EXPECT_THAT(RenderOrError("{{ '\\ud83d' }}"), HasSubstr("escape"));
  EXPECT_THAT(RenderOrError("{{ 99999999999999999999 }}"), HasSubstr("64 bits"));
}

TEST(JinjaParseErrorTest, BrokenSyntaxIsRefusedByLine) {
  EXPECT_THAT(RenderOrError("\n{{ 1 + }}"), StartsWith("error: t.jinja:2: expected an expression"));
  EXPECT_THAT(RenderOrError("{{ (1 }}"), HasSubstr("unexpected '}', expected ')'"));
  EXPECT_THAT(RenderOrError("{{ 'open }}"), HasSubstr("a string without an end"));
  EXPECT_THAT(RenderOrError("{{ x"), HasSubstr("unexpected end of template"));
  EXPECT_THAT(RenderOrError("{# x"), HasSubstr("Missing end of comment tag"));
  EXPECT_THAT(RenderOrError("{% raw %} {{"), HasSubstr("Missing end of raw directive"));
  EXPECT_THAT(RenderOrError("{% if x %}"), HasSubstr("expected 'endif'"));
  EXPECT_THAT(RenderOrError("{% endif %}"), HasSubstr("unknown tag 'endif'"));
  EXPECT_THAT(RenderOrError("{% set true = 1 %}"), HasSubstr("can't assign to 'true'"));
  EXPECT_THAT(RenderOrError("{% break %}"), HasSubstr("'break' outside of a loop"));
  EXPECT_THAT(
      RenderOrError("{% for x in y %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}"),
      HasSubstr("'continue' outside of a loop"));
  EXPECT_THAT(RenderOrError("{% macro m(a=1, b) %}{% endmacro %}"), HasSubstr("without a default"));
  EXPECT_THAT(RenderOrError("{{ $ }}"), HasSubstr("unexpected character '$'"));
  EXPECT_THAT(RenderOrError("\xFF"), HasSubstr("t.jinja: the template is not UTF-8"));
  EXPECT_THAT(RenderOrError("{{ x is defined is none }}"), HasSubstr("chained"));
}

TEST(JinjaRenderErrorTest, RaiseExceptionIsInvalidArgumentWithTheTemplatesMessage) {
  const auto text =
      RenderText("a\n{{ raise_exception('No ' ~ what ~ '!') }}", R"({"what": "luck"})");
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(text.status().message()), "t.jinja:2: No luck!");
}

TEST(JinjaRenderErrorTest, UndefinedCanBePrintedButNotUsed) {
  EXPECT_EQ(RenderOrError("[{{ x }}{{ d.y }}{{ x | default('z') }}]", R"({"d": {}})"), "[z]");
  EXPECT_EQ(RenderOrError("\n{{ x.y }}"), "error: t.jinja:2: 'x' is undefined");
  EXPECT_EQ(RenderOrError("{{ d.a.b }}", R"({"d": {}})"),
            "error: t.jinja:1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(RenderOrError("{{ d.a + 1 }}", R"({"d": {}})"),
            "error: t.jinja:1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(RenderOrError("{{ l[3].x }}", R"({"l": [1]})"),
            "error: t.jinja:1: list object has no element 3");
  EXPECT_EQ(RenderOrError("{{ nothing() }}"), "error: t.jinja:1: 'nothing' is undefined");
  EXPECT_EQ(RenderOrError("{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}"),
            "error: t.jinja:1: parameter 'a' was not provided");
}

TEST(JinjaRenderErrorTest, TheSandboxKeepsValuesImmutable) {
  for (const char* call : {"l.append(1)", "l.pop()", "d.update({})", "d.pop('a')", "l.sort()"}) {
    EXPECT_THAT(RenderOrError(std::string("{{ ") + call + " }}", R"({"l": [2], "d": {"a": 1}})"),
                HasSubstr("is unsafe"))
        << call;
  }
  EXPECT_THAT(RenderOrError("{{ ''.__class__.__mro__ }}"), HasSubstr("is unsafe"));
  EXPECT_THAT(RenderOrError("{% set d.a = 1 %}", R"({"d": {}})"), HasSubstr("no namespace"));
}

TEST(JinjaRenderErrorTest, TypesThatDoNotFitAreErrors) {
  EXPECT_THAT(RenderOrError("{{ 'a' + 1 }}"), HasSubstr("unsupported operand types for +"));
  EXPECT_THAT(RenderOrError("{{ 'a' < 1 }}"), HasSubstr("no order between 'str' and 'int'"));
  EXPECT_THAT(RenderOrError("{{ 5 in 5 }}"), HasSubstr("'int' object is not iterable"));
  EXPECT_THAT(RenderOrError("{{ 1 in 'a' }}"), HasSubstr("requires string"));
  EXPECT_THAT(RenderOrError("{% for x in 5 %}{% endfor %}"), HasSubstr("not iterable"));
  EXPECT_THAT(RenderOrError("{% set a, b = [1] %}"), HasSubstr("cannot unpack 1 values"));
  EXPECT_THAT(RenderOrError("{{ {[]: 1} }}"), HasSubstr("unhashable type: 'list'"));
  EXPECT_THAT(RenderOrError("{{ 1 // 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(RenderOrError("{{ 'x'() }}"), HasSubstr("not callable"));
  EXPECT_THAT(RenderOrError("{{ range | tojson }}"), HasSubstr("not JSON serializable"));
  EXPECT_THAT(RenderOrError("{{ [1] | map('upper') }}"), HasSubstr("cannot be printed"));
  EXPECT_THAT(RenderOrError("{{ '%s' % 1 }}"), HasSubstr("formatting a string with %"));
  EXPECT_THAT(RenderOrError("{{ 'a'.center }}"), HasSubstr("'center' of a str is not supported"));
}

TEST(JinjaRenderErrorTest, WrongArgumentsAreErrors) {
  EXPECT_THAT(RenderOrError("{{ 'a' | trim('a', 'b') }}"), HasSubstr("takes at most 1"));
  EXPECT_THAT(RenderOrError("{{ 'a' | replace('a') }}"), HasSubstr("needs the argument 'new'"));
  EXPECT_THAT(RenderOrError("{{ 'a' | trim(x=1) }}"), HasSubstr("no argument named 'x'"));
  EXPECT_THAT(RenderOrError("{{ 'a'.split(',', sep=',') }}"), HasSubstr("two values for 'sep'"));
  EXPECT_THAT(RenderOrError("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
              HasSubstr("macro 'm' takes not more than 1 argument(s)"));
  EXPECT_THAT(RenderOrError("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}"),
              HasSubstr("macro 'm' takes no keyword argument 'b'"));
}

TEST(JinjaRenderErrorTest, IntegersBeyond64BitsAreErrorsNotOverflow) {
  EXPECT_THAT(RenderOrError("{{ 9223372036854775807 + 1 }}"), HasSubstr("64-bit"));
  EXPECT_THAT(RenderOrError("{{ -9223372036854775807 - 2 }}"), HasSubstr("64-bit"));
  EXPECT_THAT(RenderOrError("{{ 10 ** 19 }}"), HasSubstr("64-bit"));
  EXPECT_EQ(RenderOrError("{{ (-9223372036854775807 - 1) // -1 }}").rfind("error", 0), 0u);
  EXPECT_THAT(RenderOrError("{{ '99999999999999999999' | int }}"), HasSubstr("64 bits"));
  EXPECT_EQ(RenderOrError("{{ n }} {{ n | tojson }} {{ n == n }} {{ n is integer }}",
                          R"({"n": 99999999999999999999})"),
            "99999999999999999999 99999999999999999999 True True");
}

}  // namespace
}  // namespace hearth::jinja
