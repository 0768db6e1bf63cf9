// OpenAI's replies: whole ones, streams, and that both say the same.
#include "runtime/serve/api/openai_writer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/serve/api/logprobs_json.h"
#include "runtime/serve/api/usage_json.h"
#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using PlainJson = nlohmann::json;

constexpr char kTools[] = R"(, "tools": [{"type": "function", "function": {"name": "look_up",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"},
    "days": {"type": "integer"}}}}}])";

std::string Chat(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "x"}])" + more + "}";
}

CompletionEnd SomeEnd(FinishReason finish = FinishReason::kStop) {
  CompletionEnd end;
  end.finish = finish;
  end.prompt_tokens = 10;
  end.reused_tokens = 4;
  end.output_tokens = 5;
  end.queued_ns = 1'000'000;
  end.first_token_ns = 5'000'000;
  end.total_ns = 9'000'000;
  end.stats.prompt_ns = 4'000'000;
  end.stats.decode_ns = 2'000'000;
  end.stats.decode_bytes = 12345;
  end.stats.drafted = {4, 2};
  end.stats.accepted = {3, 1};
  end.stats.served.of(Service::kVram) = {2, 3};
  end.stats.served.of(Service::kCpu) = {1, 2};
  end.stats.served.of(Service::kSsd) = {3, 3};
  return end;
}

struct Reply {
  std::string text;
  bool streams;
};

Reply Write(const ApiModel& model, const ApiCall& call, const std::vector<std::string>& pieces,
            const CompletionEnd& end = SomeEnd()) {
  const auto writer = MakeAnswerWriter(call, model.facts, {.unique = "u1", .created_sec = 5});
  std::string out = writer->Begin();
  for (const std::string& piece : pieces) {
    CompletionDelta delta;
    delta.text = piece;
    delta.tokens = 1;
    out += writer->Delta(delta);
  }
  return {out + writer->End(end), writer->streams()};
}

constexpr char kAnswer[] =
    "why\n</think>\n\nI look.\n\n<tool_call>\n<function=look_up>\n<parameter=city>\nS\xC3\xA3o\n"
    "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";

TEST(OpenAiWriterTest, AWholeAnswer) {
  const ApiModel model;
  const Reply reply = Write(model, model.Call(Chat(kTools)), {kAnswer});
  EXPECT_FALSE(reply.streams);
  const PlainJson json = PlainJson::parse(reply.text);
  EXPECT_EQ(json["id"], "chatcmpl-u1");
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["created"], 5);
  EXPECT_EQ(json["model"], "flashlet");
  const PlainJson& choice = json["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  EXPECT_EQ(choice["message"]["reasoning_content"], "why");
  const PlainJson& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "look_up");
  EXPECT_EQ(PlainJson::parse(call["function"]["arguments"].get<std::string>()),
            PlainJson::parse("{\"city\": \"S\xC3\xA3o\", \"days\": 3}"));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], 15);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST(OpenAiWriterTest, FinishReasons) {
  const ApiModel model;
  const auto finish = [&](const std::string& text, FinishReason reason) {
    return PlainJson::parse(Write(model, model.Call(Chat(kTools)), {text}, SomeEnd(reason))
                                .text)["choices"][0]["finish_reason"]
        .get<std::string>();
  };
  EXPECT_EQ(finish("</think>x", FinishReason::kStop), "stop");
  EXPECT_EQ(finish("</think>x", FinishReason::kLength), "length");
  EXPECT_EQ(finish(kAnswer, FinishReason::kLength), "length");
  EXPECT_EQ(finish(std::string(kAnswer).substr(0, 70), FinishReason::kLength), "length");
}

// What a client makes of the chunks of a stream.
struct Gathered {
  std::string content, reasoning, finish;
  std::vector<PlainJson> calls;
  PlainJson usage;
  size_t logprobs = 0;
};

Gathered Gather(const std::string& stream) {
  Gathered all;
  EXPECT_THAT(stream, EndsWith("data: [DONE]\n\n"));
  bool first = true;
  for (const PlainJson& chunk : Events(stream)) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    if (chunk["choices"].empty()) {
      all.usage = chunk["usage"];
      continue;
    }
    const PlainJson& choice = chunk["choices"][0];
    const PlainJson& delta = choice["delta"];
    EXPECT_EQ(delta.contains("role"), first);
    first = false;
    EXPECT_TRUE(all.finish.empty()) << "a chunk after the last";
    all.content += delta.value("content", "");
    all.reasoning += delta.value("reasoning_content", "");
    if (choice["finish_reason"].is_string()) all.finish = choice["finish_reason"];
    if (choice["logprobs"].is_object()) all.logprobs += choice["logprobs"]["content"].size();
    for (const PlainJson& call : delta.value("tool_calls", PlainJson::array())) {
      const size_t index = call["index"];
      EXPECT_LE(index, all.calls.size());
      if (index == all.calls.size()) {
        EXPECT_TRUE(call.contains("id") && call["function"].contains("name"));
        all.calls.push_back(call);
      } else {
        EXPECT_FALSE(call.contains("id"));
        PlainJson& arguments = all.calls[index]["function"]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
  }
  return all;
}

TEST(OpenAiWriterTest, AStreamSaysWhatTheWholeSays) {
  const ApiModel model;
  const std::string answer = std::string(kAnswer) + "\n" + std::string(kAnswer).substr(16);
  const PlainJson whole = PlainJson::parse(Write(model, model.Call(Chat(kTools)), {answer}).text);
  const ApiCall call = model.Call(
      Chat(std::string(kTools) + R"(, "stream": true, "stream_options": {"include_usage": true})"));
  for (const size_t step : {1U, 2U, 7U, 1000U}) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < answer.size(); at += step) pieces.push_back(answer.substr(at, step));
    const Reply reply = Write(model, call, pieces);
    EXPECT_TRUE(reply.streams);
    const Gathered all = Gather(reply.text);
    const PlainJson& message = whole["choices"][0]["message"];
    EXPECT_EQ(all.content, message["content"]);
    EXPECT_EQ(all.reasoning, message["reasoning_content"]);
    EXPECT_EQ(all.finish, "tool_calls");
    ASSERT_EQ(all.calls.size(), message["tool_calls"].size());
    for (size_t i = 0; i < all.calls.size(); ++i) {
      EXPECT_EQ(all.calls[i]["id"], message["tool_calls"][i]["id"]);
      EXPECT_EQ(all.calls[i]["function"], message["tool_calls"][i]["function"]);
    }
    EXPECT_EQ(all.usage["completion_tokens"], 5);
  }
}

TEST(OpenAiWriterTest, AStreamWithoutUsageHasNone) {
  const ApiModel model;
  const Reply reply = Write(model, model.Call(Chat(R"(, "stream": true)")), {"</think>a"});
  EXPECT_THAT(reply.text, Not(HasSubstr("usage")));
}

// B32: a stream whose pieces are parts of characters, cut anywhere.
TEST(OpenAiWriterTest, CharactersAcrossPieces) {
  const ApiModel model(ApiModel::Template::kPlain);
  const std::string bytes = "\xF0\x9F\xA7\xAA\xE6\xAD\xAA\xFFx";
  for (size_t end = 0; end <= bytes.size(); ++end) {
    std::vector<std::string> pieces;
    for (size_t i = 0; i < end; ++i) pieces.emplace_back(1, bytes[i]);
    const Gathered all = Gather(Write(model, model.Call(Chat(R"(, "stream": true)")), pieces).text);
    const PlainJson whole = PlainJson::parse(Write(model, model.Call(Chat("")), pieces).text);
    EXPECT_EQ(all.content, whole["choices"][0]["message"]["content"]) << end;
  }
}

TEST(OpenAiWriterTest, CallsAreOmittedWhereNoneWereOffered) {
  const ApiModel model;
  const PlainJson json = PlainJson::parse(Write(model, model.Call(Chat("")), {kAnswer}).text);
  EXPECT_THAT(json["choices"][0]["message"]["content"].get<std::string>(),
              HasSubstr("<tool_call>"));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST(OpenAiWriterTest, ContentIsNullBesideCallsAlone) {
  const ApiModel model;
  const std::string only_call = "</think>" + std::string(kAnswer).substr(23);
  const PlainJson json = PlainJson::parse(Write(model, model.Call(Chat(kTools)), {only_call}).text);
  EXPECT_EQ(json["choices"][0]["message"]["content"], nullptr);
  EXPECT_FALSE(json["choices"][0]["message"].contains("reasoning_content"));
}

TEST(OpenAiWriterTest, Logprobs) {
  const ApiModel model(ApiModel::Template::kPlain);
  const std::string want = R"(, "logprobs": true, "top_logprobs": 2)";
  CompletionDelta delta;
  delta.text = "a";
  delta.tokens = 2;
  const TokenId token = model.facts.tokenizer->Encode("a", SpecialTokens::kAsText)[0];
  delta.report = {{.chosen = {token, -0.5F}, .top = {{token, -0.5F}, {3, -2}}},
                  {.chosen = {4, -std::numeric_limits<float>::infinity()}, .top = {}}};
  const auto whole = MakeAnswerWriter(model.Call(Chat(want)), model.facts, {});
  whole->Begin();
  whole->Delta(delta);
  const PlainJson json = PlainJson::parse(whole->End(SomeEnd()));
  const PlainJson& content = json["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["bytes"], PlainJson::array({97}));
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "<think>");
  EXPECT_EQ(content[1]["logprob"], -9999.0);
  const auto stream =
      MakeAnswerWriter(model.Call(Chat(want + R"(, "stream": true)")), model.facts, {});
  std::string text = stream->Begin() + stream->Delta(delta);
  CompletionDelta silent;  // held text: its tokens are told all the same
  silent.tokens = 1;
  silent.report = {{.chosen = {token, -1}, .top = {}}};
  text += stream->Delta(silent) + stream->End(SomeEnd());
  EXPECT_EQ(Gather(text).logprobs, 3U);
}

TEST(OpenAiWriterTest, Completions) {
  const ApiModel model;
  const ApiCall call = model.Call(R"({"prompt": "x", "logprobs": 1})", Dialect::kOpenAiCompletion);
  const auto writer = MakeAnswerWriter(call, model.facts, {.unique = "u", .created_sec = 1});
  EXPECT_EQ(writer->Begin(), "");
  CompletionDelta delta;
  delta.text = "<think>ab";
  delta.tokens = 1;
  delta.report = {{.chosen = {3, -1}, .top = {{3, -1}}}, {.chosen = {4, -2}, .top = {}}};
  EXPECT_EQ(writer->Delta(delta), "");
  const PlainJson json = PlainJson::parse(writer->End(SomeEnd(FinishReason::kLength)));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["choices"][0]["text"], "<think>ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"][0], "<think>");
  EXPECT_EQ(json["choices"][0]["logprobs"]["text_offset"], PlainJson::array({0, 7}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["top_logprobs"][0]["<think>"], -1);

  const ApiCall stream =
      model.Call(R"({"prompt": "x", "stream": true, "stream_options": {"include_usage": true}})",
                 Dialect::kOpenAiCompletion);
  const Reply reply = Write(model, stream, {"a", "", "b"});
  const std::vector<PlainJson> events = Events(reply.text);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1]["choices"][0]["text"], "b");
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events[3]["choices"].empty());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 15);
}

TEST(OpenAiWriterTest, ErrorsInMidStream) {
  const ApiModel model;
  const auto writer =
      MakeAnswerWriter(model.Call(Chat(R"(, "stream": true)")), model.facts, {.unique = "u"});
  const std::string text = writer->Begin() + writer->KeepAlive() +
                           writer->Error(absl::DeadlineExceededError("too long"));
  const std::vector<PlainJson> events = Events(text);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["error"]["type"], "timeout");
  EXPECT_THAT(text, EndsWith("data: [DONE]\n\n"));
  const auto whole = MakeAnswerWriter(model.Call(Chat("")), model.facts, {});
  EXPECT_EQ(PlainJson::parse(whole->Error(absl::InternalError("x")))["error"]["type"],
            "server_error");
  EXPECT_EQ(whole->KeepAlive(), "");
}

TEST(UsageJsonTest, TiersAddUpAndRatesAreExact) {
  const Json usage = HearthUsage(SomeEnd());
  EXPECT_EQ(usage["experts"]["vram"]["entries"], 3);
  EXPECT_EQ(usage["experts"]["vram"]["distinct"], 2);
  EXPECT_EQ(usage["experts"]["pcie"]["entries"], 0);
  double shares = 0;
  for (const auto& [name, tier] : usage["experts"].items()) shares += tier["share"].get<double>();
  EXPECT_DOUBLE_EQ(shares, 1);
  EXPECT_EQ(usage["drafts"]["offered"], 6);
  EXPECT_EQ(usage["drafts"]["accepted"], 4);
  EXPECT_EQ(usage["drafts"]["by_position"].size(), 2U);
  EXPECT_EQ(usage["bytes_read"], 12345);
  EXPECT_DOUBLE_EQ(usage["time_to_first_token_ms"].get<double>(), 5);
  EXPECT_DOUBLE_EQ(usage["prompt_tokens_per_second"].get<double>(), 6 / 0.004);
  EXPECT_DOUBLE_EQ(usage["decode_tokens_per_second"].get<double>(), 4 / 0.002);
}

// B38: nothing done, cancelled at once, everything found ready.
TEST(UsageJsonTest, UndefinedRatesAreNull) {
  CompletionEnd all_cached = SomeEnd();
  all_cached.reused_tokens = all_cached.prompt_tokens;
  all_cached.stats = {};
  for (const CompletionEnd& end : {CompletionEnd{}, all_cached}) {
    const PlainJson usage = PlainJson::parse(DumpJson(OpenAiUsage(end, 9)))["hearth"];
    EXPECT_EQ(usage["experts"]["vram"]["share"], nullptr);
    EXPECT_EQ(usage["drafts"]["acceptance"], nullptr);
    EXPECT_EQ(usage["prompt_tokens_per_second"], nullptr);
    EXPECT_EQ(usage["decode_tokens_per_second"], nullptr);
  }
  EXPECT_EQ(HearthUsage(CompletionEnd{})["time_to_first_token_ms"], nullptr);
  EXPECT_EQ(OpenAiUsage(CompletionEnd{}, 9)["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(AnthropicUsage(SomeEnd())["input_tokens"], 6);
  EXPECT_EQ(AnthropicUsage(SomeEnd())["cache_read_input_tokens"], 4);
}

}  // namespace
}  // namespace hearth
