// Anthropic's replies: whole ones, streams, and that both say the same.
#include "runtime/serve/api/anthropic_writer.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr char kRequest[] = R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}],
    "stop_sequences": ["END"], "thinking": {"type": "adaptive"}, "tools": [{"name": "look_up",
    "input_schema": {"properties": {"city": {"type": "string"}}}}])";
constexpr char kAnswer[] =
    "why\n</think>\n\nI look.\n\n<tool_call>\n<function=look_up>\n<parameter=city>\nS\xC3\xA3o\n"
    "</parameter>\n</function>\n</tool_call>";

std::string Write(const ApiModel& model, bool stream, const std::vector<std::string>& pieces,
                  const CompletionEnd& end) {
  const ApiCall call = model.Call(std::string(kRequest) + (stream ? R"(, "stream": true})" : "}"),
                                  Dialect::kAnthropic);
  const auto writer = MakeAnswerWriter(call, model.facts, {.unique = "u1"});
  EXPECT_EQ(writer->streams(), stream);
  std::string out = writer->Begin();
  for (const std::string& piece : pieces) {
    CompletionDelta delta;
    delta.text = piece;
    delta.tokens = 1;
    out += writer->Delta(delta);
  }
  return out + writer->End(end);
}

CompletionEnd End(FinishReason finish = FinishReason::kStop, std::string stop = "") {
  CompletionEnd end;
  end.finish = finish;
  end.stop_string = std::move(stop);
  end.prompt_tokens = 8;
  end.reused_tokens = 3;
  end.output_tokens = 4;
  return end;
}

TEST(AnthropicWriterTest, AWholeMessage) {
  const ApiModel model;
  const Json json = Json::parse(Write(model, false, {kAnswer}, End()));
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("msg_"));
  EXPECT_EQ(json["stop_reason"], "tool_use");
  EXPECT_EQ(json["stop_sequence"], nullptr);
  ASSERT_EQ(json["content"].size(), 3U);
  EXPECT_EQ(json["content"][0]["thinking"], "why");
  EXPECT_TRUE(json["content"][0].contains("signature"));
  EXPECT_EQ(json["content"][1]["text"], "I look.");
  EXPECT_EQ(json["content"][2]["input"], Json::parse("{\"city\": \"S\xC3\xA3o\"}"));
  EXPECT_EQ(json["usage"]["input_tokens"], 5);
  EXPECT_EQ(json["usage"]["cache_read_input_tokens"], 3);
  EXPECT_EQ(json["usage"]["output_tokens"], 4);
}

TEST(AnthropicWriterTest, StopReasons) {
  const ApiModel model;
  const auto reason = [&](const std::string& text, const CompletionEnd& end) {
    return Json::parse(Write(model, false, {text}, end))["stop_reason"].get<std::string>();
  };
  EXPECT_EQ(reason("</think>x", End()), "end_turn");
  EXPECT_EQ(reason("</think>x", End(FinishReason::kLength)), "max_tokens");
  EXPECT_EQ(reason("</think>x", End(FinishReason::kStop, "END")), "stop_sequence");
  EXPECT_EQ(reason(kAnswer, End(FinishReason::kStop, "</tool_call>")), "tool_use");
  const Json json = Json::parse(Write(model, false, {"x"}, End(FinishReason::kStop, "END")));
  EXPECT_EQ(json["stop_sequence"], "END");
}

TEST(AnthropicWriterTest, AStreamSaysWhatTheWholeSays) {
  const ApiModel model;
  const std::string answer = kAnswer;
  const Json whole = Json::parse(Write(model, false, {answer}, End()));
  for (const size_t step : {1U, 3U, 1000U}) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < answer.size(); at += step) pieces.push_back(answer.substr(at, step));
    std::vector<Json> blocks;
    std::string partial;
    Json last;
    std::vector<std::string> order;
    bool open = false;
    for (const Json& event : Events(Write(model, true, pieces, End()))) {
      const std::string type = event["type"];
      if (type != "content_block_delta") order.push_back(type);
      if (type == "message_start") {
        EXPECT_TRUE(event["message"]["usage"]["input_tokens"].is_number());
      }
      if (type == "content_block_start") {
        EXPECT_FALSE(open);
        open = true;
        EXPECT_EQ(event["index"], blocks.size());
        blocks.push_back(event["content_block"]);
        partial.clear();
      } else if (type == "content_block_delta") {
        EXPECT_TRUE(open);
        const Json& delta = event["delta"];
        for (const char* name : {"text", "thinking", "signature"}) {
          if (delta.contains(name)) {
            blocks.back()[name] =
                blocks.back()[name].get<std::string>() + delta[name].get<std::string>();
          }
        }
        partial += delta.value("partial_json", "");
      } else if (type == "content_block_stop") {
        open = false;
        if (!partial.empty()) blocks.back()["input"] = Json::parse(partial);
      } else if (type == "message_delta") {
        last = event;
      }
    }
    EXPECT_EQ(Json(blocks), whole["content"]);
    EXPECT_EQ(last["delta"]["stop_reason"], "tool_use");
    EXPECT_EQ(last["usage"]["output_tokens"], 4);
    EXPECT_THAT(order,
                ElementsAre("message_start", "ping", "content_block_start", "content_block_stop",
                            "content_block_start", "content_block_stop", "content_block_start",
                            "content_block_stop", "message_delta", "message_stop"));
  }
}

TEST(AnthropicWriterTest, EventsAreNamedAndErrorsAreEvents) {
  const ApiModel model;
  const ApiCall call =
      model.Call(std::string(kRequest) + R"(, "stream": true})", Dialect::kAnthropic);
  const auto writer = MakeAnswerWriter(call, model.facts, {});
  EXPECT_THAT(writer->Begin(), StartsWith("event: message_start\ndata: {"));
  EXPECT_EQ(writer->KeepAlive(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  const std::string error = writer->Error(absl::UnavailableError("stopping"));
  EXPECT_THAT(error, StartsWith("event: error\ndata: {"));
  EXPECT_EQ(Events(error)[0]["error"]["type"], "overloaded_error");
}

}  // namespace
}  // namespace hearth
