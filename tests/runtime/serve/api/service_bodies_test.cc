// Models, health, tokens and text, and what is not served.
#include "runtime/serve/api/service_bodies.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(ServiceBodiesTest, Models) {
  const ApiModel model;
  const Json list = Json::parse(ModelsBody(Dialect::kOpenAiChat, model.facts));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "flashlet");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(list["data"][0]["hearth"]["defaults"]["top_k"], 20);
  EXPECT_EQ(list["data"][0]["hearth"]["defaults"]["top_p"].dump(), "0.95");
  const Json anthropic = Json::parse(ModelsBody(Dialect::kAnthropic, model.facts));
  EXPECT_EQ(anthropic["data"][0]["created_at"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(anthropic["has_more"], false);
  EXPECT_EQ(Json::parse(*ModelBody(Dialect::kOpenAiChat, model.facts, "flashlet"))["id"],
            "flashlet");
  EXPECT_EQ(ModelBody(Dialect::kOpenAiChat, model.facts, "x").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ServiceBodiesTest, Health) {
  EXPECT_EQ(Json::parse(HealthBody({.ready = true, .requests_running = 2}))["status"], "ok");
  EXPECT_EQ(Json::parse(HealthBody({}))["status"], "starting");
  EXPECT_EQ(Json::parse(HealthBody({.ready = true, .stopping = true}))["status"], "stopping");
}

TEST(ServiceBodiesTest, TextToTokensAndBack) {
  const ApiModel model;
  const Json reply = Json::parse(
      *TokenizeBody(R"({"prompt": "<think>h\u00e9", "with_pieces": true})", model.facts));
  EXPECT_EQ(reply["tokens"][0], 3);
  EXPECT_EQ(reply["count"], reply["tokens"].size());
  EXPECT_EQ(reply["token_strs"][0], "<think>");
  const Json plain =
      Json::parse(*TokenizeBody(R"({"content": "<think>", "parse_special": false})", model.facts));
  EXPECT_NE(plain["tokens"][0], 3);
  const Json text =
      Json::parse(*DetokenizeBody("{\"tokens\": " + reply["tokens"].dump() + "}", model.facts));
  EXPECT_EQ(text["prompt"], "<think>h\xC3\xA9");
  EXPECT_EQ(text["content"], text["prompt"]);
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}]})";
  const Json tokens = Json::parse(*TokenizeBody(chat, model.facts));
  EXPECT_EQ(tokens["tokens"].get<std::vector<TokenId>>(), model.Call(chat).request.prompt);
}

TEST(ServiceBodiesTest, WrongBodies) {
  const ApiModel model;
  for (const char* body : {"", "{}", R"({"prompt": 5})", R"({"prompt": "a", "content": "b"})",
                           R"({"prompt": "a", "x": 1})", R"({"prompt": "a", "with_pieces": 1})"}) {
    EXPECT_FALSE(TokenizeBody(body, model.facts).ok()) << body;
  }
  for (const char* body : {"", "{}", R"({"tokens": [8192]})", R"({"tokens": [-1]})",
                           R"({"tokens": ["a"]})", R"({"tokens": 5})"}) {
    EXPECT_FALSE(DetokenizeBody(body, model.facts).ok()) << body;
  }
}

TEST(ServiceBodiesTest, CountsAnthropicsTokens) {
  const ApiModel model;
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}])";
  const Json count = Json::parse(*CountTokensBody(body + "}", model.facts));
  EXPECT_EQ(count["input_tokens"],
            model.Call(body + R"(, "max_tokens": 1})", Dialect::kAnthropic).request.prompt.size());
}

TEST(ServiceBodiesTest, WhatIsNotServed) {
  const ErrorReply reply = MakeErrorReply(Dialect::kOpenAiChat, NotServed("/v1/embeddings"));
  EXPECT_EQ(reply.http_status, 501);
  EXPECT_THAT(Json::parse(reply.body)["error"]["message"].get<std::string>(),
              HasSubstr("does not serve /v1/embeddings"));
}

}  // namespace
}  // namespace hearth
