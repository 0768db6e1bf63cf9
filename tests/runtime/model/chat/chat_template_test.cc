// Whole chat templates against what Python's Jinja rendered (tests/golden/make_chat_golden.py), and
// the interface of ChatTemplate.
#include "runtime/model/chat/chat_template.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "runtime/model/chat/jinja_json.h"

namespace hearth {
namespace {

using jinja::Value;
using ::testing::HasSubstr;

const std::string kSourceDir = HEARTH_SOURCE_DIR;

Value ReadJson(const std::string& path) {
  const auto text = ReadFile(path, 4 << 20);
  if (!text.ok()) {
    ADD_FAILURE() << text.status();
    return Value();
  }
  const auto value = jinja::ParseJson(*text, path);
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    return Value();
  }
  return *value;
}

std::string Dump(const Value& value) {
  const auto text = jinja::DumpJson(value, {});
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

const Value& At(const Value& object, const std::string& key) {
  const Value* found = object.AsDict().FindString(key);
  EXPECT_NE(found, nullptr) << key;
  return *found;
}

ChatRequest RequestOf(const Value& conversation, const Value& options) {
  ChatRequest request;
  request.messages_json = Dump(At(conversation, "messages"));
  const Value* tools = conversation.AsDict().FindString("tools");
  if (tools != nullptr) request.tools_json = Dump(*tools);
  request.variables_json = Dump(options);
  request.bos_token = "<s>";
  request.eos_token = "</s>";
  request.now = absl::CivilSecond(2026, 11, 5, 9, 7, 3);
  return request;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, RendersEveryConversationAsPythonDoes) {
  const Value conversations = ReadJson(kSourceDir + "/tests/golden/chat/conversations.json");
  const Value golden = ReadJson(kSourceDir + "/tests/golden/chat/" + GetParam() + ".json");
  ASSERT_TRUE(golden.IsDict());
  const auto chat = ChatTemplate::Load(kSourceDir + "/" + At(golden, "template").AsString());
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_FALSE(At(golden, "cases").AsSequence().empty());
  for (const Value& test_case : At(golden, "cases").AsSequence()) {
    const std::string& name = At(test_case, "conversation").AsString();
    SCOPED_TRACE(name + " " + Dump(At(test_case, "options")));
    const Value* conversation = nullptr;
    for (const Value& candidate : conversations.AsSequence()) {
      if (At(candidate, "name").AsString() == name) conversation = &candidate;
    }
    ASSERT_NE(conversation, nullptr);
    const auto text = chat->Render(RequestOf(*conversation, At(test_case, "options")));
    const Value* output = test_case.AsDict().FindString("output");
    if (output != nullptr) {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, output->AsString());
    } else {
      ASSERT_FALSE(text.ok()) << *text;
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(text.status().message()),
                  HasSubstr(At(test_case, "error").AsString()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, GoldenTest,
                         ::testing::Values("date", "filters_and_tests", "flashlet", "loop_features",
                                           "qwen_style", "values", "whitespace"),
                         [](const auto& param_info) { return param_info.param; });

TEST(ChatTemplateTest, RendersASingleUserTurn) {
  const auto chat = ChatTemplate::Load(kSourceDir + "/profiles/flashlet/chat_template.jinja");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = chat->Render(SingleUserTurn("Say \"hi\"\n\\o/ \xC3\xA9"));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            "<|im_start|>user\nSay \"hi\"\n\\o/ \xC3\xA9<|im_end|>\n<|im_start|>assistant\n");
  const auto with_system = chat->Render(SingleUserTurn("u", "s"));
  ASSERT_TRUE(with_system.ok()) << with_system.status();
  EXPECT_EQ(*with_system,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplateTest, ToolsAndDocumentsThatAreNotGivenAreNone) {
  const auto chat =
      ChatTemplate::Parse("{{ tools }} {{ documents }} {{ bos_token is defined }}", "t.jinja");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = chat->Render(SingleUserTurn("x"));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "None None False");
}

TEST(ChatTemplateTest, ExtraVariablesReachTheTemplateWithTheirTypes) {
  const auto chat = ChatTemplate::Parse("{{ [a, b, c, add_generation_prompt] }}", "t.jinja");
  ASSERT_TRUE(chat.ok()) << chat.status();
  ChatRequest request = SingleUserTurn("x");
  request.add_generation_prompt = false;
  request.variables_json = R"({"a": false, "b": "low", "c": [1, null]})";
  const auto text = chat->Render(request);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "[False, 'low', [1, None], False]");
}

TEST(ChatTemplateTest, RefusesTheTimeWhereNoneIsGiven) {
  const auto chat = ChatTemplate::Parse("a\n{{ strftime_now('%Y') }}", "dir/t.jinja");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = chat->Render(SingleUserTurn("x"));
  EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("dir/t.jinja:2: "));
}

TEST(ChatTemplateTest, RefusesRequestsOfTheWrongShape) {
  const auto chat = ChatTemplate::Parse("x", "t.jinja");
  ASSERT_TRUE(chat.ok());
  ChatRequest request;
  EXPECT_FALSE(chat->Render(request).ok());  // no messages
  request.messages_json = "{}";
  EXPECT_THAT(std::string(chat->Render(request).status().message()),
              HasSubstr("messages: expected an array, found 'dict'"));
  request.messages_json = "[1,";
  EXPECT_THAT(std::string(chat->Render(request).status().message()),
              HasSubstr("messages: not JSON"));
  request = SingleUserTurn("bad \xFF byte");
  EXPECT_FALSE(chat->Render(request).ok());
  request = SingleUserTurn("x");
  request.variables_json = "[]";
  EXPECT_THAT(std::string(chat->Render(request).status().message()),
              HasSubstr("variables: expected an object"));
  request.variables_json.clear();
  request.bos_token = "\xFF";
  EXPECT_THAT(std::string(chat->Render(request).status().message()), HasSubstr("bos_token"));
}

TEST(ChatTemplateTest, LoadNamesAFileThatIsNotThere) {
  const auto chat = ChatTemplate::Load("/nowhere/chat_template.jinja");
  EXPECT_EQ(chat.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(chat.status().message()), HasSubstr("/nowhere/chat_template.jinja"));
}

}  // namespace
}  // namespace hearth
