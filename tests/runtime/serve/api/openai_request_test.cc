// OpenAI's requests: every field, its default, its refusal.
#include "runtime/serve/api/openai_request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Form = ConstraintWish::Form;

std::string Chat(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "x"}])" + more + "}";
}

constexpr char kTools[] = R"(, "tools": [{"type": "function", "function": {"name": "look_up",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "stop", "strict": true}}])";

TEST(OpenAiRequestTest, ASilentRequestGetsTheModelsOwnSampling) {
  const ApiModel model;
  const ApiCall call = model.Call(Chat(""));
  EXPECT_EQ(call.request.sampling.temperature, 1);
  EXPECT_EQ(call.request.sampling.top_k, 20U);
  EXPECT_FLOAT_EQ(call.request.sampling.top_p, 0.95F);
  EXPECT_EQ(call.request.sampling.seed, 77U);  // the caller's
  EXPECT_FALSE(call.request.max_tokens.has_value());
  EXPECT_FALSE(call.stream);
  EXPECT_EQ(call.model, "flashlet");
  EXPECT_EQ(call.request.constraint, nullptr);
  EXPECT_EQ(call.prompt_tokens, call.request.prompt.size());
}

TEST(OpenAiRequestTest, EveryFieldOfSampling) {
  const ApiModel model;
  const ApiCall call = model.Call(Chat(R"(, "model": "flashlet", "temperature": 0.5, "top_p": 0.8,
      "top_k": 7, "min_p": 0.1, "presence_penalty": -1, "frequency_penalty": 2,
      "repetition_penalty": 1.5, "logit_bias": {"5": -100, "0": 3.5}, "seed": 9223372036854775807,
      "min_tokens": 3, "ignore_eos": true, "stop": ["a", "b\u0000"], "max_completion_tokens": 12,
      "priority": "high", "timeout": 1.5, "cache_salt": "me", "user": "u", "metadata": {"a": "b"},
      "stream": true, "stream_options": {"include_usage": true}, "n": 1, "store": false,
      "modalities": ["text"], "service_tier": "auto", "logprobs": true, "top_logprobs": 20)"));
  const SamplingParams& sampling = call.request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.8F);
  EXPECT_EQ(sampling.top_k, 7U);
  EXPECT_EQ(sampling.min_p, 0.1F);
  EXPECT_EQ(sampling.presence_penalty, -1);
  EXPECT_EQ(sampling.frequency_penalty, 2);
  EXPECT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(sampling.seed, 9223372036854775807U);
  EXPECT_EQ(sampling.min_tokens, 3U);
  ASSERT_EQ(sampling.logit_bias.size(), 2U);
  EXPECT_EQ(sampling.logit_bias[0].token, 5);
  EXPECT_EQ(sampling.logit_bias[1].bias, 3.5F);
  EXPECT_TRUE(call.request.ignore_stop_tokens);
  EXPECT_THAT(call.request.stop_strings, ElementsAre("a", std::string("b\0", 2)));
  EXPECT_EQ(call.request.max_tokens, 12U);
  EXPECT_EQ(call.request.priority, Priority::kHigh);
  EXPECT_EQ(call.request.timeout_ns, 1'500'000'000);
  EXPECT_EQ(call.request.cache_salt, "me");
  EXPECT_TRUE(call.stream);
  EXPECT_TRUE(call.include_usage);
  EXPECT_TRUE(call.request.wants_logprobs);
  EXPECT_EQ(call.request.top_logprobs, 20U);
}

TEST(OpenAiRequestTest, SmallSpellings) {
  const ApiModel model;
  EXPECT_THAT(model.Call(Chat(R"(, "stop": "END")")).request.stop_strings, ElementsAre("END"));
  EXPECT_EQ(model.Call(Chat(R"(, "max_tokens": 5)")).request.max_tokens, 5U);
  EXPECT_EQ(model.Call(Chat(R"(, "max_tokens": 5, "max_completion_tokens": 5)")).request.max_tokens,
            5U);
  EXPECT_EQ(model.Call(Chat(R"(, "priority": -3)")).request.priority, Priority::kHigh);
  EXPECT_EQ(model.Call(Chat(R"(, "priority": 3)")).request.priority, Priority::kLow);
  EXPECT_EQ(model.Call(Chat(R"(, "temperature": null, "stop": null)")).request.sampling.temperature,
            1);
  EXPECT_TRUE(model.Call(Chat(R"(, "temperature": 0)")).request.sampling.greedy());
}

TEST(OpenAiRequestTest, WhatHasNoEffectIsRefusedByName) {
  const ApiModel model;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"n", "2"},
           {"best_of", "3"},
           {"audio", R"({"voice": "x"})"},
           {"modalities", R"(["text", "audio"])"},
           {"functions", "[]"},
           {"function_call", "\"auto\""},
           {"prediction", "{}"},
           {"web_search_options", "{}"},
           {"store", "true"},
           {"verbosity", "\"high\""},
           {"suffix", "\"x\""},
           {"echo", "true"},
           {"unheard_of", "1"},
           {"service_tier", "\"flex\""},
           {"stream_options", R"({"include_usage": true})"},
           {"top_logprobs", "3"},
           {"cache_salt", "\"\""},
           {"response_format", R"({"type": "grammar"})"},
           {"tool_choice", "\"sometimes\""}}) {
    const auto error = model.Error(Chat(", \"" + name + "\": " + value));
    EXPECT_EQ(error["status"], 400) << name;
    const std::string param = error["param"].is_string() ? error["param"] : "";
    EXPECT_THAT(param, testing::StartsWith(name));
  }
  EXPECT_EQ(model.Error(Chat(R"(, "unheard_of": 1)"))["code"], "unknown_parameter");
}

TEST(OpenAiRequestTest, ContradictionsAreRefused) {
  const ApiModel model;
  for (const char* more :
       {R"(, "max_tokens": 5, "max_completion_tokens": 6)",
        R"(, "enable_thinking": true, "reasoning_effort": "none")",
        R"(, "enable_thinking": false, "thinking_budget": 5)",
        R"(, "thinking_budget": 5, "reasoning": {"budget": 6})",
        R"(, "reasoning_effort": "low", "reasoning": {"effort": "high"})",
        R"(, "enable_thinking": true, "chat_template_kwargs": {"enable_thinking": false})"}) {
    EXPECT_FALSE(model.Refusal(Chat(more)).ok()) << more;
  }
}

TEST(OpenAiRequestTest, MessagesOfTheWrongShapeNameTheirPlace) {
  const ApiModel model;
  const auto check = [&](const std::string& messages, const std::string& message) {
    EXPECT_THAT(std::string(model.Refusal("{\"messages\": " + messages + "}").message()),
                HasSubstr(message))
        << messages;
  };
  check("1", "messages: expected a list, found an integer");
  check("[]", "messages: expected 1 to");
  check("null", "messages: missing");
  check("[1]", "messages[0]: expected an object");
  check(R"([{"content": "x"}])", "messages[0].role: missing");
  check(R"([{"role": "king", "content": "x"}])", "messages[0].role: expected one of \"system\"");
  check(R"([{"role": "user"}])", "messages[0].content: missing");
  check(R"([{"role": "user", "content": 5}])", "messages[0].content: expected a string or a list");
  check(R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]: expected an object");
  check(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
        "messages[0].content[0].type: this server reads text only");
  check(R"([{"role": "user", "content": "x", "tool_calls": []}])",
        "messages[0].tool_calls: belongs to assistant messages");
  check(R"([{"role": "tool", "content": "x"}])", "messages[0].tool_call_id: missing");
  check(R"([{"role": "assistant"}])", "messages[0].content: expected a text");
  check(R"([{"role": "user", "content": "x", "mood": 1}])", "messages[0].mood");
  const std::string call = R"([{"role": "assistant", "tool_calls": [{"type": "function", "function":
      {"name": "f", "arguments": )";
  check(call + "\"[1]\"}}]}]",
        "messages[0].tool_calls[0].function.arguments: expected a JSON object");
  check(call + "\"{\"}}]}]", "messages[0].tool_calls[0].function.arguments: the text: not JSON");
  check(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "a b"}}]}])",
        "messages[0].tool_calls[0].function.name: expected 1 to 64");
}

TEST(OpenAiRequestTest, ToolsOfTheWrongShapeNameTheirPlace) {
  const ApiModel model;
  const auto check = [&](const std::string& tools, const std::string& message) {
    EXPECT_THAT(std::string(model.Refusal(Chat(", \"tools\": " + tools)).message()),
                HasSubstr(message))
        << tools;
  };
  check("{}", "tools: expected a list");
  check(R"([{"type": "web_search"}])", "tools[0].type: expected \"function\"");
  check(R"([{"type": "function"}])", "tools[0].function: missing");
  check(R"([{"type": "function", "function": {"name": ""}}])", "tools[0].function.name: expected");
  check(R"([{"type": "function", "function": {"name": "f", "parameters": 1}}])",
        "tools[0].function.parameters: expected an object");
  check(R"([{"type": "function", "function": {"name": "f"}},
            {"type": "function", "function": {"name": "f"}}])",
        "tools[1].function.name: two tools have the same name");
}

TEST(OpenAiRequestTest, ToolChoices) {
  const ApiModel model;
  ApiCall call = model.Call(Chat(kTools));
  ASSERT_NE(call.format.tools, nullptr);
  EXPECT_EQ(call.format.tools->tools.size(), 2U);
  EXPECT_EQ(call.request.constraint, nullptr);
  EXPECT_THAT(model.Text(call.request.prompt), HasSubstr("look_up"));

  call = model.Call(Chat(std::string(kTools) + R"(, "tool_choice": "none")"));
  EXPECT_EQ(call.format.tools, nullptr);
  EXPECT_THAT(model.Text(call.request.prompt), testing::Not(HasSubstr("look_up")));

  call = model.Call(Chat(std::string(kTools) + R"(, "tool_choice": "required")"));
  EXPECT_NE(call.request.constraint, nullptr);
  ASSERT_TRUE(model.constraints.last.has_value());
  EXPECT_EQ(model.constraints.last->form, Form::kToolCall);
  EXPECT_EQ(model.constraints.last->tools.size(), 2U);
  EXPECT_FALSE(model.constraints.last->one_call);
  EXPECT_TRUE(model.constraints.last->reasoning_open);

  call = model.Call(Chat(std::string(kTools) +
                         R"(, "tool_choice": {"type": "function", "function": {"name": "stop"}})"));
  ASSERT_EQ(model.constraints.last->tools.size(), 1U);
  EXPECT_EQ(model.constraints.last->tools[0].name, "stop");
  EXPECT_TRUE(model.constraints.last->one_call);

  EXPECT_FALSE(
      model
          .Refusal(Chat(std::string(kTools) +
                        R"(, "tool_choice": {"type": "function", "function": {"name": "other"}})"))
          .ok());
  EXPECT_FALSE(model.Refusal(Chat(R"(, "tool_choice": "required")")).ok());
}

TEST(OpenAiRequestTest, OneCallEndsTheAnswer) {
  const ApiModel model;
  const ApiCall call =
      model.Call(Chat(std::string(kTools) + R"(, "parallel_tool_calls": false, "stop": "x")"));
  EXPECT_TRUE(call.format.one_call);
  EXPECT_THAT(call.request.stop_strings, ElementsAre("x", "</tool_call>"));
  EXPECT_THAT(call.client_stops, ElementsAre("x"));
}

TEST(OpenAiRequestTest, ResponseFormats) {
  ApiModel model;
  EXPECT_EQ(model.Call(Chat(R"(, "response_format": {"type": "text"})")).request.constraint,
            nullptr);
  model.Call(Chat(R"(, "response_format": {"type": "json_object"})"));
  EXPECT_EQ(model.constraints.last->form, Form::kJsonObject);
  const std::string schema = R"(, "response_format": {"type": "json_schema", "json_schema":
      {"name": "s", "strict": true, "schema": {"type": "object", "b": 1, "a": 2}}})";
  model.Call(Chat(schema));
  EXPECT_EQ(model.constraints.last->form, Form::kJsonSchema);
  EXPECT_EQ(model.constraints.last->schema_json, R"({"type":"object","b":1,"a":2})");
  EXPECT_FALSE(model.Refusal(Chat(schema + kTools)).ok());
  EXPECT_TRUE(model.Refusal(Chat(schema + kTools + R"(, "tool_choice": "none")")).ok());
  EXPECT_FALSE(model.Refusal(Chat(R"(, "response_format": {"type": "json_schema"})")).ok());

  model.constraints.refusal = absl::UnimplementedError("#/b: keyword not supported");
  const auto error = model.Error(Chat(schema));
  EXPECT_EQ(error["param"], "response_format.json_schema.schema");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("#/b: keyword not supported"));
  model.facts.constraints = nullptr;
  EXPECT_THAT(std::string(model.Refusal(Chat(schema)).message()),
              HasSubstr("cannot constrain answers"));
}

TEST(OpenAiRequestTest, ReasoningBudgets) {
  const ApiModel model;
  for (const char* more : {R"(, "thinking_budget": 50)", R"(, "reasoning": {"budget": 50})",
                           R"(, "reasoning": {"max_tokens": 50})",
                           R"(, "thinking": {"type": "enabled", "budget_tokens": 50})"}) {
    const ApiCall call = model.Call(Chat(more));
    EXPECT_NE(call.request.constraint, nullptr) << more;
    EXPECT_EQ(model.constraints.last->reasoning_tokens_max, 50U);
    EXPECT_EQ(model.constraints.last->form, Form::kFree);
    EXPECT_TRUE(model.constraints.last->reasoning_open);
  }
}

TEST(OpenAiRequestTest, Completions) {
  const ApiModel model;
  const auto call = [&](const std::string& body) {
    return model.Call(body, Dialect::kOpenAiCompletion);
  };
  ApiCall text = call(R"({"prompt": "<|im_start|>user\nHi", "logprobs": 3})");
  EXPECT_EQ(text.request.prompt,
            model.facts.tokenizer->Encode("<|im_start|>user\nHi", SpecialTokens::kParse));
  EXPECT_EQ(text.request.max_tokens, 16U);
  EXPECT_TRUE(text.request.wants_logprobs);
  EXPECT_EQ(text.request.top_logprobs, 3U);
  EXPECT_THAT(call(R"({"prompt": [1, 2, 3]})").request.prompt, ElementsAre(1, 2, 3));
  EXPECT_THAT(call(R"({"prompt": [[4, 5]]})").request.prompt, ElementsAre(4, 5));
  EXPECT_EQ(call(R"({"prompt": ["Hi"]})").request.prompt,
            model.facts.tokenizer->Encode("Hi", SpecialTokens::kParse));
  for (const char* body :
       {R"({"prompt": ["a", "b"]})", R"({"prompt": ""})", R"({"prompt": []})",
        R"({"prompt": [[]]})", R"({"prompt": [-1]})", R"({"prompt": [8192]})",
        R"({"prompt": [1.5]})", R"({"prompt": [1, "a"]})", R"({"prompt": 5})", R"({"prompt": {}})",
        R"({})", R"({"prompt": "x", "messages": []})", R"({"prompt": "x", "echo": true})",
        R"({"prompt": "x", "enable_thinking": true})"}) {
    EXPECT_EQ(
        MakeErrorReply(Dialect::kOpenAiCompletion, model.Refusal(body, Dialect::kOpenAiCompletion))
            .http_status,
        400)
        << body;
  }
}

TEST(OpenAiRequestTest, AModelWithoutATemplateRefusesChat) {
  ApiModel model;
  model.facts.chat = nullptr;
  EXPECT_EQ(model.Error(Chat(""))["status"], 400);
  EXPECT_THAT(std::string(model.Refusal(Chat("")).message()), HasSubstr("/v1/completions"));
}

}  // namespace
}  // namespace hearth
