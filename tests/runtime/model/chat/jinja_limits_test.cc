// Every bound of the interpreter ends in ResourceExhausted, and the last value inside it works.
#include "runtime/model/chat/jinja_limits.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/model/chat/jinja_rendering.h"

namespace hearth::jinja {
namespace {

std::string Repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

absl::StatusCode CodeOf(std::string_view source, std::string_view variables = "{}") {
  return RenderText(source, variables).status().code();
}

constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kOk = absl::StatusCode::kOk;

TEST(JinjaLimitsTest, TemplateBytes) {
  EXPECT_EQ(CodeOf(std::string(kTemplateBytesMax, 'x')), kOk);
  EXPECT_EQ(CodeOf(std::string(kTemplateBytesMax + 1, 'x')), kExhausted);
}

TEST(JinjaLimitsTest, NestingOfExpressions) {
  for (const auto& [open, close] : {std::pair("(", ")"), std::pair("[", "]"), std::pair("-", ""),
                                    std::pair("not ", ""), std::pair("range(", ")")}) {
    EXPECT_EQ(
        CodeOf("{% if false %}{{ " + Repeat(open, 90) + "1" + Repeat(close, 90) + " }}{% endif %}"),
        kOk)
        << open;
    EXPECT_EQ(CodeOf("{% if false %}{{ " + Repeat(open, 5000) + "1" + Repeat(close, 5000) +
                     " }}{% endif %}"),
              kExhausted)
        << open;
  }
}

TEST(JinjaLimitsTest, ChainsOfOperations) {
  for (const char* link : {" + 1", " | abs", "[0]", ".a", " if 1", " and 1", " * 1", "()"}) {
    EXPECT_EQ(CodeOf("{% if false %}{{ 1" + Repeat(link, 190) + " }}{% endif %}"), kOk) << link;
    EXPECT_EQ(CodeOf("{% if false %}{{ 1" + Repeat(link, 5000) + " }}{% endif %}"), kExhausted)
        << link;
  }
  EXPECT_EQ(CodeOf("{{ 1" + Repeat(" ~ 1", 5000) + " }}"), kOk);  // one operation of many parts
}

TEST(JinjaLimitsTest, NestingOfBlocks) {
  const auto nested = [](int count) {
    return Repeat("{% if true %}", count) + "x" + Repeat("{% endif %}", count);
  };
  EXPECT_EQ(CodeOf(nested(90)), kOk);
  EXPECT_EQ(CodeOf(nested(5000)), kExhausted);
  EXPECT_EQ(CodeOf("{% if 0 %}" + Repeat("{% elif 0 %}", 5000) + "{% endif %}"), kOk);
}

TEST(JinjaLimitsTest, NestingOfJson) {
  EXPECT_EQ(CodeOf("{{ x }}", "{\"x\": " + Repeat("[", 98) + Repeat("]", 98) + "}"), kOk);
  EXPECT_EQ(CodeOf("{{ x }}", "{\"x\": " + Repeat("[", 100000) + Repeat("]", 100000) + "}"),
            kExhausted);
}

TEST(JinjaLimitsTest, NestingOfValues) {
  EXPECT_EQ(CodeOf("{% set ns = namespace(x=[]) %}"
                   "{% for i in range(98) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
            kOk);
  EXPECT_EQ(CodeOf("{% set ns = namespace(x=[]) %}"
                   "{% for i in range(100) %}{% set ns.x = [ns.x] %}{% endfor %}"),
            kExhausted);
}

TEST(JinjaLimitsTest, ValuesThatDoubleInEveryStep) {
  EXPECT_EQ(CodeOf("{% set ns = namespace(x=[1]) %}"
                   "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"),
            kExhausted);
  EXPECT_EQ(CodeOf("{% set ns = namespace(x='ab') %}"
                   "{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
            kExhausted);
  EXPECT_EQ(CodeOf("{{ 'ab' * 1000000000000 }}"), kExhausted);
  EXPECT_EQ(CodeOf("{{ ([1] * 1000000000000) | length }}"), kExhausted);
  EXPECT_EQ(CodeOf("{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}"), kExhausted);
  EXPECT_EQ(CodeOf("{{ ('\n' * 100000) | indent(1000, blank=true) }}"), kExhausted);
  EXPECT_EQ(CodeOf("{{ range(1000) | join('x' * 100000) }}"), kExhausted);
}

TEST(JinjaLimitsTest, LoopIterations) {
  EXPECT_EQ(CodeOf("{% for i in range(100) %}{% for j in range(5000) %}{% endfor %}{% endfor %}"),
            kOk);
  EXPECT_EQ(CodeOf("{% for i in range(100) %}{% for j in range(99999) %}{% break %}"
                   "{% endfor %}{% endfor %}"),
            kExhausted);
  EXPECT_EQ(CodeOf("{% for i in range(100) %}{{ range(99999) | sum }}{% endfor %}"), kExhausted);
}

TEST(JinjaLimitsTest, RangeItems) {
  EXPECT_EQ(CodeOf("{{ range(100000) | length }}"), kOk);
  EXPECT_EQ(CodeOf("{{ range(100001) | length }}"), kExhausted);
}

TEST(JinjaLimitsTest, OutputBytes) {
  const std::string mebibyte = "{% set s = 'x' * 1048576 %}";
  EXPECT_EQ(CodeOf(mebibyte + "{% for i in range(16) %}{{ s }}{% endfor %}"), kOk);
  EXPECT_EQ(CodeOf(mebibyte + "{% for i in range(16) %}{{ s }}{% endfor %}x"), kExhausted);
}

TEST(JinjaLimitsTest, MacroRecursion) {
  const std::string macro =
      "{% macro m(n) %}{{ n }}{% if n > 1 %}{{ m(n - 1) }}{% endif %}{% endmacro %}";
  EXPECT_EQ(CodeOf(macro + "{{ m(50) }}"), kOk);
  EXPECT_EQ(CodeOf(macro + "{{ m(51) }}"), kExhausted);
}

TEST(JinjaLimitsTest, EvaluationDepthOverMacrosAndExpressions) {
  const std::string deep = "{{ " + Repeat("[", 90) + "m(n - 1)" + Repeat("]", 90) + " }}";
  EXPECT_EQ(
      CodeOf("{% macro m(n) %}{% if n > 0 %}" + deep + "{% endif %}{% endmacro %}{{ m(49) }}"),
      kExhausted);
}

TEST(JinjaLimitsTest, MacrosAndNamespacesThatReferToThemselvesAreFreed) {
  EXPECT_EQ(RenderOrError("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}"
                          "{% macro m() %}{% endmacro %}{% set ns.m = m %}"
                          "{% for x in [1] %}{% set ns.loop = loop %}{% endfor %}"
                          "{{ ns.self.self.l | length }}"),
            "1");
}

}  // namespace
}  // namespace hearth::jinja
