// FAULTS.md B35 (prompts longer than the context), B36 (values out of range) and B37 (bodies that
// break the JSON layer), over all dialects: refused with the field's name, nothing echoed, and the
// next request is fine.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/model/tokenizer/utf8.h"
#include "runtime/serve/api/fields.h"
#include "runtime/serve/api/reasoning_wish.h"
#include "runtime/serve/api/sampling_fields.h"
#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr Dialect kDialects[] = {Dialect::kOpenAiChat, Dialect::kOpenAiCompletion,
                                 Dialect::kAnthropic};

std::string Body(Dialect dialect, const std::string& more) {
  if (dialect == Dialect::kOpenAiCompletion) return R"({"prompt": "x")" + more + "}";
  const std::string tokens =
      dialect == Dialect::kAnthropic && more.find("max_tokens") == std::string::npos
          ? R"(, "max_tokens": 9)"
          : "";
  return R"({"messages": [{"role": "user", "content": "x"}])" + tokens + more + "}";
}

TEST(RequestFaultsTest, PromptsBeyondTheContextAreRefusedWithBothLengths) {
  ApiModel model(ApiModel::Template::kPlain);
  model.facts.context_tokens = 64;
  const auto prompt = [](size_t tokens, const std::string& more = "") {
    std::string list = "1";
    for (size_t i = 1; i < tokens; ++i) list += ",1";
    return R"({"prompt": [)" + list + "]" + more + "}";
  };
  constexpr Dialect kText = Dialect::kOpenAiCompletion;
  EXPECT_TRUE(model.Refusal(prompt(63), kText).ok());
  for (const size_t tokens : {64U, 65U, 10'000U}) {
    for (const char* stream : {"", R"(, "stream": true)"}) {
      const auto error = model.Error(prompt(tokens, stream), kText);
      EXPECT_EQ(error["status"], 400);
      EXPECT_EQ(error["code"], "context_length_exceeded");
      EXPECT_THAT(error["message"].get<std::string>(),
                  HasSubstr("the prompt has " + std::to_string(tokens) + " tokens"));
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("holds 64"));
    }
  }
  // The wall is met while generating: that is no error of the request.
  EXPECT_TRUE(model.Refusal(prompt(60, R"(, "max_tokens": 10)"), kText).ok());
  std::string words;
  for (int i = 0; i < 10'000; ++i) words += "word ";
  for (const Dialect dialect : {Dialect::kOpenAiChat, Dialect::kAnthropic}) {
    const std::string body =
        R"({"messages": [{"role": "user", "content": ")" + words + R"("}], "max_tokens": 5})";
    EXPECT_EQ(model.Refusal(body, dialect).code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(RequestFaultsTest, MaxTokensOutOfRange) {
  const ApiModel model;
  for (const Dialect dialect : kDialects) {
    for (const char* value : {"0", "-1", "2147483648", "1e3", "\"5\"", "true", "[]", "1.0"}) {
      const std::string body = Body(dialect, std::string(R"(, "max_tokens": )") + value);
      EXPECT_THAT(std::string(model.Refusal(body, dialect).message()), HasSubstr("max_tokens: "))
          << body;
    }
    EXPECT_TRUE(model.Refusal(Body(dialect, R"(, "max_tokens": 2147483647)"), dialect).ok());
  }
  EXPECT_TRUE(model.Refusal(Body(Dialect::kOpenAiChat, ""), Dialect::kOpenAiChat).ok());
  EXPECT_THAT(
      std::string(
          model.Refusal(R"({"messages": [{"role": "user", "content": "x"}]})", Dialect::kAnthropic)
              .message()),
      HasSubstr("max_tokens: missing"));
}

struct NumericField {
  const char* name;
  bool anthropic;
  bool integer;
  std::vector<const char*> edges;  // that are fine
  std::vector<const char*> wrong;  // besides those that are wrong everywhere
};

std::vector<NumericField> NumericFields() {
  return {
      {"temperature", true, false, {"0", "2", "100", "1e-300"}, {"-0.1", "100.1", "1e300"}},
      {"top_p", true, false, {"0", "1", "0.5"}, {"1.1", "-0.1"}},
      {"min_p", true, false, {"0", "1"}, {"1.1", "-0.1"}},
      {"top_k", true, true, {"0", "1", "8192"}, {"8193", "1.5", "1e2"}},
      {"presence_penalty", true, false, {"-2", "2", "0", "-1"}, {"2.1", "-2.1"}},
      {"frequency_penalty", true, false, {"-2", "2", "0", "-1"}, {"2.1", "-2.1"}},
      {"repetition_penalty", true, false, {"0.01", "100", "1"}, {"0", "100.5"}},
      {"seed", true, true, {"0", "9223372036854775807"}, {"9223372036854775808", "1.5"}},
      {"min_tokens", false, true, {"0", "1048576"}, {"1048577"}},
      {"timeout", true, false, {"0.5", "86400"}, {"0", "86401"}},
      {"n", false, true, {"1"}, {"0", "2", "1.0"}},
      {"thinking_budget", false, true, {"0", "1048576"}, {"1048577"}},
  };
}

TEST(RequestFaultsTest, NumbersOutOfRangeNameTheirField) {
  const ApiModel model;
  for (const NumericField& field : NumericFields()) {
    for (const Dialect dialect : {Dialect::kOpenAiChat, Dialect::kAnthropic}) {
      if (dialect == Dialect::kAnthropic && !field.anthropic) continue;
      const auto body = [&](const std::string& value) {
        return Body(dialect, ", \"" + std::string(field.name) + "\": " + value);
      };
      std::vector<const char*> wrong = {
          "NaN",   "Infinity", "-Infinity", "1e999", "-1e999", "99999999999999999999999",
          "\"1\"", "[]",       "{}",        "true"};
      wrong.insert(wrong.end(), field.wrong.begin(), field.wrong.end());
      if (std::string(field.name).find("y_penalty") == std::string::npos &&
          std::string(field.name) != "presence_penalty") {
        wrong.push_back("-1");
      }
      for (const char* value : wrong) {
        const absl::Status refusal = model.Refusal(body(value), dialect);
        EXPECT_FALSE(refusal.ok()) << body(value);
        EXPECT_THAT(std::string(refusal.message()), HasSubstr(field.name)) << body(value);
        EXPECT_EQ(MakeErrorReply(dialect, refusal).http_status, 400);
      }
      for (const char* value : field.edges) {
        EXPECT_TRUE(model.Refusal(body(value), dialect).ok())
            << model.Refusal(body(value), dialect) << body(value);
      }
      EXPECT_TRUE(model.Refusal(body("null"), dialect).ok()) << field.name;
    }
  }
}

TEST(RequestFaultsTest, LogitBiasOfNoToken) {
  const ApiModel model;
  for (const char* value :
       {R"({"8192": 1})", R"({"-1": 1})", R"({"a": 1})", R"({"": 1})", R"({"01": 1})",
        R"({"1 ": 1})", R"({"1": 101})", R"({"1": -101})", R"({"1": "x"})", R"({"1": null})",
        R"({"1": 1e999})", R"({"1": 1, "1": 2})", "[]", "5", R"({"99999999999999": 1})"}) {
    EXPECT_THAT(
        std::string(
            model.Refusal(Body(Dialect::kOpenAiChat, std::string(R"(, "logit_bias": )") + value))
                .message()),
        HasSubstr("logit_bias"))
        << value;
  }
  std::string many;
  for (int i = 0; i < 8192; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  EXPECT_EQ(model.Call(Body(Dialect::kOpenAiChat, R"(, "logit_bias": {)" + many + "}"))
                .request.sampling.logit_bias.size(),
            8192U);
}

TEST(RequestFaultsTest, StopsOutOfRange) {
  const ApiModel model;
  std::string many = "\"a\"";
  for (int i = 0; i < 256; ++i) many += ",\"a\"";
  for (const std::string& value :
       {std::string("\"\""), std::string("[\"\"]"), std::string("[1]"), std::string("5"),
        std::string("{}"), "[" + many + "]", "\"" + std::string(65537, 'a') + "\""}) {
    EXPECT_THAT(
        std::string(model.Refusal(Body(Dialect::kOpenAiChat, ", \"stop\": " + value)).message()),
        HasSubstr("stop"));
    EXPECT_THAT(
        std::string(model
                        .Refusal(Body(Dialect::kAnthropic, ", \"stop_sequences\": " + value),
                                 Dialect::kAnthropic)
                        .message()),
        HasSubstr("stop_sequences"));
  }
}

TEST(RequestFaultsTest, BodiesThatBreakJsonLayers) {
  const ApiModel model;
  std::vector<std::string> bodies = {
      "",
      " ",
      "null",
      "5",
      "[]",
      "\"x\"",
      "{",
      "{\"messages\":",
      "\xFF\xFE",
      "\xEF\xBB\xBF",
      std::string("{}\0", 3),
      "{\"messages\": \"\\ud800\"}",
      R"({"messages": [], "messages": []})",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"\xC3\"}]}",
      "{\"\xFF\": 1}",
      R"({"messages": {"role": "user"}})",
      R"({"messages": [[]]})",
      R"({"tools": 1})",
      "{\"ignored\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      "{\"metadata\": " + std::string(100'000, '[') + "}"};
  for (const Dialect dialect : kDialects) {
    for (const std::string& body : bodies) {
      const absl::Status refusal = model.Refusal(body, dialect);
      ASSERT_FALSE(refusal.ok()) << body.substr(0, 80);
      const ErrorReply reply = MakeErrorReply(dialect, refusal);
      EXPECT_EQ(reply.http_status, 400) << reply.body;
      EXPECT_TRUE(IsValidUtf8(reply.body));
      EXPECT_LT(reply.body.size(), 600U);
    }
    const ErrorReply too_large =
        MakeErrorReply(dialect, model.Refusal(std::string((16 << 20) + 1, ' '), dialect));
    EXPECT_EQ(too_large.http_status, 413);
    EXPECT_TRUE(model.Refusal(Body(dialect, ""), dialect).ok());
  }
}

// Bytes changed, cut and doubled at random: refused or usable, never worse.
TEST(RequestFaultsTest, GarbledBodies) {
  const ApiModel model;
  const std::string good = R"({"messages": [{"role": "user", "content": "x\u00e9"}, {"role":
      "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function":
      {"name": "f", "arguments": "{\"a\": [1, {}]}"}}]}, {"role": "tool", "tool_call_id": "a",
      "content": "\ud83e\udd2a"}, {"role": "user", "content": [{"type": "text", "text": "y"}]}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a":
      {"type": "array"}}}}}], "stop": ["a"], "temperature": 0.5, "logit_bias": {"5": 1},
      "max_tokens": 10})";
  ASSERT_TRUE(model.Refusal(good).ok()) << model.Refusal(good);
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed);
    std::string body = good;
    for (uint64_t i = 0; i <= prng.Below(4); ++i) {
      const size_t at = prng.Below(body.size());
      switch (prng.Below(4)) {
        case 0:
          body[at] = static_cast<char>(prng.Below(256));
          break;
        case 1:
          body.erase(at, 1 + prng.Below(8));
          break;
        case 2:
          body.insert(at, body.substr(prng.Below(body.size()), prng.Below(20)));
          break;
        default:
          body.insert(at, 1, "{}[]\":,\\"[prng.Below(8)]);
      }
    }
    for (const Dialect dialect : kDialects) {
      const auto call = ParseApiCall(dialect, body, model.facts, {});
      if (call.ok()) {
        EXPECT_FALSE(call->request.prompt.empty());
        EXPECT_TRUE(call->request.sampling.Validate(model.facts.tokenizer->vocab_count()).ok());
      } else {
        EXPECT_TRUE(IsValidUtf8(MakeErrorReply(dialect, call.status()).body));
      }
    }
  }
}

}  // namespace
}  // namespace hearth
