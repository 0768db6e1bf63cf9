// Anthropic's requests.
#include "runtime/serve/api/anthropic_request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serve/api/anthropic_messages.h"
#include "runtime/serve/api/call_options.h"
#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Form = ConstraintWish::Form;
constexpr Dialect kDialect = Dialect::kAnthropic;

std::string Message(const std::string& more) {
  return R"({"model": "flashlet", "max_tokens": 9,
      "messages": [{"role": "user", "content": "x"}])" +
         more + "}";
}

constexpr char kTools[] = R"(, "tools": [{"name": "look_up", "description": "d", "input_schema":
    {"type": "object", "properties": {"city": {"type": "string"}}}, "cache_control":
    {"type": "ephemeral"}},
    {"type": "custom", "name": "stop", "input_schema": {"type": "object"}}])";

TEST(AnthropicRequestTest, FieldsAndDefaults) {
  const ApiModel model;
  const ApiCall call = model.Call(Message(R"(, "system": "s", "temperature": 0.25, "top_k": 3,
      "top_p": 0.5, "stop_sequences": ["a", "b"], "stream": true, "metadata": {"user_id": "u"},
      "service_tier": "standard_only", "seed": 4)"),
                                  kDialect);
  EXPECT_EQ(call.request.max_tokens, 9U);
  EXPECT_EQ(call.request.sampling.temperature, 0.25F);
  EXPECT_EQ(call.request.sampling.top_k, 3U);
  EXPECT_EQ(call.request.sampling.seed, 4U);
  EXPECT_THAT(call.client_stops, ElementsAre("a", "b"));
  EXPECT_TRUE(call.stream);
  EXPECT_THAT(model.Text(call.request.prompt), HasSubstr("<|im_start|>system\ns<|im_end|>"));
  EXPECT_EQ(model.Call(Message(""), kDialect).request.sampling.top_k, 20U);
}

TEST(AnthropicRequestTest, ThinkingIsOffUnlessAskedFor) {
  const ApiModel model;
  const auto prompt = [&](const std::string& more) {
    return model.Text(model.Call(Message(more), kDialect).request.prompt);
  };
  EXPECT_THAT(prompt(""), EndsWith("<think>\n\n</think>\n\n"));
  EXPECT_THAT(prompt(R"(, "thinking": {"type": "disabled"})"), EndsWith("</think>\n\n"));
  EXPECT_THAT(prompt(R"(, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"})"),
              EndsWith("<think>\n"));
  EXPECT_THAT(prompt(R"(, "thinking": {"type": "enabled", "budget_tokens": 1024})"),
              EndsWith("<think>\n"));
  EXPECT_EQ(model.constraints.last->reasoning_tokens_max, 1024U);
  EXPECT_TRUE(
      model.Call(Message(R"(, "thinking": {"type": "adaptive", "display": "omitted"})"), kDialect)
          .format.omit_reasoning);
  const ApiModel plain(ApiModel::Template::kPlain);
  EXPECT_TRUE(plain.Refusal(Message(""), kDialect).ok());
  EXPECT_THAT(std::string(plain
                              .Refusal(Message(R"(, "thinking": {"type": "enabled",
                  "budget_tokens": 1024})"),
                                       kDialect)
                              .message()),
              HasSubstr("thinking"));
}

TEST(AnthropicRequestTest, BlocksBecomeTurns) {
  const ApiModel model;
  const ApiCall call = model.Call(std::string(R"({"max_tokens": 9, "system": [{"type": "text",
      "text": "one", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "two"}],
      "messages": [{"role": "user", "content": "Rain?"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "zz"}, {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"city": "Rome"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content":
        [{"type": "text", "text": "wet"}]}, {"type": "tool_result", "tool_use_id": "t2",
        "is_error": true, "content": "no"}, {"type": "text", "text": "So?"}]}])") +
                                      kTools + "}",
                                  kDialect);
  const std::string text = model.Text(call.request.prompt);
  EXPECT_THAT(text, HasSubstr("one\n\ntwo<|im_end|>"));
  EXPECT_THAT(text, HasSubstr("<think>\nhm\n</think>\n\nI look.\n\n<tool_call>\n<function=look_up>"
                              "\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_THAT(text, HasSubstr("<tool_response>\nwet\n</tool_response>\n<tool_response>\nError: no\n"
                              "</tool_response><|im_end|>\n<|im_start|>user\nSo?<|im_end|>"));
  ASSERT_NE(call.format.tools, nullptr);
  EXPECT_EQ(call.format.tools->Find("look_up")->TypesOf("city"), kJsonString);
}

TEST(AnthropicRequestTest, ToolChoices) {
  const ApiModel model;
  const std::string tools = kTools;
  model.Call(Message(tools + R"(, "tool_choice": {"type": "any"})"), kDialect);
  EXPECT_EQ(model.constraints.last->form, Form::kToolCall);
  EXPECT_FALSE(model.constraints.last->one_call);
  model.Call(Message(tools + R"(, "tool_choice": {"type": "tool", "name": "stop"})"), kDialect);
  ASSERT_EQ(model.constraints.last->tools.size(), 1U);
  EXPECT_EQ(model.constraints.last->tools[0].name, "stop");
  EXPECT_EQ(
      model.Call(Message(tools + R"(, "tool_choice": {"type": "none"})"), kDialect).format.tools,
      nullptr);
  EXPECT_TRUE(model
                  .Call(Message(tools + R"(, "tool_choice": {"type": "auto",
      "disable_parallel_tool_use": true})"),
                        kDialect)
                  .format.one_call);
}

TEST(AnthropicRequestTest, StructuredOutput) {
  const ApiModel model;
  model.Call(Message(R"(, "output_config": {"format": {"type": "json_schema", "schema":
      {"type": "object"}}})"),
             kDialect);
  EXPECT_EQ(model.constraints.last->form, Form::kJsonSchema);
  EXPECT_EQ(model.constraints.last->schema_json, R"({"type":"object"})");
}

TEST(AnthropicRequestTest, RefusalsNameTheirPlace) {
  const ApiModel model;
  const auto check = [&](const std::string& body, const std::string& message) {
    EXPECT_THAT(std::string(model.Refusal(body, kDialect).message()), HasSubstr(message)) << body;
  };
  const auto messages = [](const std::string& list) {
    return R"({"max_tokens": 5, "messages": )" + list + "}";
  };
  check(messages("[]"), "messages: expected 1 to");
  check(messages(R"([{"role": "user"}])"), "messages[0].content: missing");
  check(messages(R"([{"role": "tool", "content": "x"}])"), "messages[0].role: expected one of");
  check(messages(R"([{"role": "user", "content": [{"type": "image", "source": {}}]}])"),
        "messages[0].content[0].type: this server reads text only");
  check(messages(R"([{"role": "user", "content": [{"type": "tool_use"}]}])"),
        "messages[0].content[0].type");
  check(messages(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "Yes,"}])"),
        "messages[1]: the last message is the assistant's");
  check(Message(R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])"),
        "tools[0].type");
  check(Message(R"(, "mcp_servers": [])"), "mcp_servers");
  check(Message(R"(, "tools": [{"name": "f", "defer_loading": true}])"), "tools[0].defer_loading");
  check(Message(R"(, "tools": [{"name": "f", "allowed_callers": []}])"), "allowed_callers");
  check(Message(R"(, "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]})"),
        "context_management.edits[0]");
  check(Message(R"(, "thinking": {"budget_tokens": 5})"), "thinking.type: missing");
  EXPECT_TRUE(model
                  .Refusal(Message(R"(, "context_management": {"edits": [{"type":
      "clear_thinking_20251015", "keep": "all"}]})"),
                           kDialect)
                  .ok());
}

}  // namespace
}  // namespace hearth
