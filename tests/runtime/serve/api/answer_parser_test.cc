// Answers taken apart: what is reasoning, content and call, and that cuts change nothing.
#include "runtime/serve/api/answer_parser.h"

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/prng.h"
#include "runtime/model/tokenizer/utf8.h"
#include "runtime/serve/api/answer_reader.h"
#include "runtime/serve/api/tool_set.h"

namespace hearth {

void PrintTo(const AnswerPart& part, std::ostream* out) {
  *out << "kind " << static_cast<int>(part.kind) << " " << part.call_name << ": " << part.text;
}

namespace {

using Kind = AnswerPart::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

AnswerFormat Tools() {
  AnswerFormat format;
  auto tools = std::make_shared<ToolSet>();
  tools->tools.push_back(
      {.name = "look_up",
       .parameters_json = "{}",
       .arguments = {{"city", kJsonString}, {"days", kJsonInteger}, {"all", kJsonBoolean}}});
  tools->tools.push_back({.name = "stop", .parameters_json = "", .arguments = {}});
  format.tools = tools;
  return format;
}

AnswerFormat Everything() {
  AnswerFormat format = Tools();
  format.reasoning = true;
  return format;
}

AnswerPart Reasoning(std::string text) { return {Kind::kReasoning, std::move(text), ""}; }
AnswerPart Content(std::string text) { return {Kind::kContent, std::move(text), ""}; }
AnswerPart Call(std::string name, std::string arguments) {
  return {Kind::kCall, std::move(arguments), std::move(name)};
}

std::vector<AnswerPart> Parse(const AnswerFormat& format,
                              const std::vector<std::string_view>& pieces) {
  AnswerParser parser(format);
  std::vector<AnswerPart> all;
  const auto take = [&all](std::vector<AnswerPart> parts) {
    for (const AnswerPart& part : parts) {
      EXPECT_TRUE(IsValidUtf8(part.text)) << part.text;
      EXPECT_TRUE(part.kind == Kind::kCall || !part.text.empty());
    }
    AppendParts(std::move(parts), all);
  };
  for (const std::string_view piece : pieces) {
    std::vector<AnswerPart> parts;
    parser.Push(piece, parts);
    take(std::move(parts));
  }
  std::vector<AnswerPart> parts;
  parser.Finish(parts);
  take(std::move(parts));
  return all;
}

std::vector<AnswerPart> Parse(const AnswerFormat& format, std::string_view text) {
  return Parse(format, std::vector<std::string_view>{text});
}

constexpr char kCall[] =
    "<tool_call>\n<function=look_up>\n<parameter=city>\nS\xC3\xA3o Paulo\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
constexpr char kCallJson[] = "{\"city\": \"S\xC3\xA3o Paulo\", \"days\": 3}";

TEST(AnswerParserTest, PlainTextIsContentAtOnce) {
  AnswerParser parser(AnswerFormat{});
  std::vector<AnswerPart> parts;
  parser.Push("a <tool_call> \n", parts);
  EXPECT_THAT(parts, ElementsAre(Content("a <tool_call> \n")));
}

TEST(AnswerParserTest, ReasoningAtTheBeginning) {
  const AnswerFormat format = Everything();
  EXPECT_THAT(Parse(format, "<think>\nwhy\nnot\n</think>\n\nYes."),
              ElementsAre(Reasoning("why\nnot"), Content("Yes.")));
  EXPECT_THAT(Parse(format, "\n<think>x</think>y"), ElementsAre(Reasoning("x"), Content("y")));
  EXPECT_THAT(Parse(format, "<think>\n\n</think>\n\nno thoughts"),
              ElementsAre(Content("no thoughts")));
  EXPECT_THAT(Parse(format, "<think>cut sho"), ElementsAre(Reasoning("cut sho")));
  EXPECT_THAT(Parse(format, "<think>cut</thi"), ElementsAre(Reasoning("cut</thi")));
  EXPECT_THAT(Parse(format, "<thin"), ElementsAre(Content("<thin")));
  EXPECT_THAT(Parse(format, "say <think> x </think>"),
              ElementsAre(Content("say <think> x </think>")));
}

TEST(AnswerParserTest, ReasoningThatThePromptOpened) {
  AnswerFormat format = Everything();
  format.reasoning_open = true;
  EXPECT_THAT(Parse(format, "\nwhy\n</think>\n\nYes </think>"),
              ElementsAre(Reasoning("why"), Content("Yes </think>")));
  EXPECT_THAT(Parse(format, "</think>Yes"), ElementsAre(Content("Yes")));
  EXPECT_THAT(Parse(format, ""), IsEmpty());
}

TEST(AnswerParserTest, WithoutReasoningItsMarksAreText) {
  EXPECT_THAT(Parse(Tools(), "<think>x</think>y"), ElementsAre(Content("<think>x</think>y")));
}

TEST(AnswerParserTest, ReasoningThatIsNotTold) {
  AnswerFormat format = Everything();
  format.omit_reasoning = true;
  EXPECT_THAT(Parse(format, "<think>\nwhy\n</think>\n\nYes."), ElementsAre(Content("Yes.")));
  EXPECT_THAT(Parse(format, "<think>\nwhy"), IsEmpty());
}

TEST(AnswerParserTest, LineBreaksBeforeAFormAreDropped) {
  AnswerFormat format;
  format.trim_beginning = true;
  EXPECT_THAT(Parse(format, "\n\n{}\n"), ElementsAre(Content("{}\n")));
  format.reasoning = true;
  EXPECT_THAT(Parse(format, "\n\n{}"), ElementsAre(Content("{}")));
  EXPECT_THAT(Parse(format, "<think>a</think>\n{}"), ElementsAre(Reasoning("a"), Content("{}")));
}

TEST(AnswerParserTest, CallsBetweenContent) {
  const std::string text = std::string("I look.\n\n") + kCall + "\n" + kCall + "\n";
  EXPECT_THAT(Parse(Everything(), text), ElementsAre(Content("I look."), Call("look_up", kCallJson),
                                                     Call("look_up", kCallJson)));
  EXPECT_THAT(Parse(Everything(), std::string(kCall) + "\n\nDone."),
              ElementsAre(Call("look_up", kCallJson), Content("Done.")));
  EXPECT_THAT(Parse(Tools(), "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"),
              ElementsAre(Call("stop", "{}")));
}

TEST(AnswerParserTest, TheLastEndMarkMayBeMissing) {
  const std::string_view whole = kCall;
  const std::string_view cut = whole.substr(0, whole.find("</tool_call>"));
  EXPECT_THAT(Parse(Tools(), cut), ElementsAre(Call("look_up", kCallJson)));
}

TEST(AnswerParserTest, ValuesMayHoldMarks) {
  const std::string value = "</tool_call> </function> </parameter> x <tool_call>\n<function=stop>";
  EXPECT_THAT(Parse(Tools(), "<tool_call>\n<function=look_up>\n<parameter=city>\n" + value +
                                 "\n</parameter>\n</function>\n</tool_call>"),
              ElementsAre(Call("look_up", "{\"city\": " + nlohmann::json(value).dump() + "}")));
}

TEST(AnswerParserTest, WhatIsNoCallIsContentByteForByte) {
  for (const std::string& text : std::vector<std::string>{
           "a\n\n<tool_call>\n<function=unknown>\n</function>\n</tool_call>\n",
           "<tool_call>",
           " <tool_call> ",
           "x <tool_call>\n<function=look_up",
           "x <tool_call>\n<function=look_up>\n<parameter=city>\nRome",
           "<tool_call>\n<function=look_up>\n<parameter=city>\nRome\n</parameter>\n",
           "<tool_call>\n<function=look_up>\nRome\n</function>\n</tool_call>",
           "<tool_call></tool_call>",
           "<tool_call>{\"name\": \"stop\"</tool_call>",
           "<tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": \"stop\", \"arguments\": [1]}</tool_call>",
           "<tool_call>{\"name\": \"stop\", \"name\": \"stop\"}</tool_call>",
           "<tool_call><tool_call><tool_call>",
           "a < b, <tool, <tool_call",
           "<tool_call>\n<function=look_up>\n<parameter=city>\nA\n</parameter>\n"
           "<parameter=city>\nB\n</parameter>\n</function>\n</tool_call>",
       }) {
    EXPECT_THAT(Parse(Tools(), text), ElementsAre(Content(text)));
  }
}

TEST(AnswerParserTest, ACallAfterABrokenOneIsFound) {
  const std::string broken = "<tool_call>\n<function=nope>\n</function>\n</tool_call>";
  EXPECT_THAT(Parse(Tools(), broken + "\n" + kCall),
              ElementsAre(Content(broken), Call("look_up", kCallJson)));
}

TEST(AnswerParserTest, ContentIsNotHeldBackWithoutReason) {
  AnswerParser parser(Everything());
  std::vector<AnswerPart> parts;
  parser.Push("Hello, <b>world</b> <", parts);
  EXPECT_THAT(parts, ElementsAre(Content("Hello, <b>world</b>")));
  parts.clear();
  parser.Push("i>", parts);
  EXPECT_THAT(parts, ElementsAre(Content(" <i>")));
}

// B32: characters that come in pieces.
TEST(AnswerParserTest, NoCharacterIsSplit) {
  for (const AnswerFormat& format : {AnswerFormat{}, Everything()}) {
    EXPECT_THAT(Parse(format, {"\xF0\x9F", "\xA7", "\xAA", "\xE6\xAD", "\xAA", "\xFF", "x\xC3"}),
                ElementsAre(Content("\xF0\x9F\xA7\xAA\xE6\xAD\xAA\xEF\xBF\xBDx\xEF\xBF\xBD")));
  }
}

std::vector<std::string> Answers() {
  return {std::string("<think>\nw\xC3\xA9ll\n\n</think>\n\nI look.\n\n") + kCall + "\n" + kCall,
          std::string("\n <think>a</think>\n") + kCall + "\n trailing \n",
          "<think>open \n",
          "<think>\n\n",
          "a\n\n<tool_call>\n<function=look_up>\n<parameter=city>\nRome\n</par",
          "x<tool_call>\n<function=nope>\n</function>\n</tool_call>\n" + std::string(kCall),
          "<tool_call> {\"name\": \"stop\", \"arguments\": {\"a\": \"</tool_call>\"}} </tool_call>",
          "<tool_call><tool_call>\n<function=stop></function></tool_call> z",
          "<tool_call>\n<function=look_up>\n<parameter=city>\n<tool_call>\n<function=stop>\n"
          "</function>\n</tool_call>",
          "<tool_call>\n<function=stop>\n</function>",
          "\xF0\x9F\xA7\xAA <think> \xE6\xAD\xAA"};
}

TEST(AnswerParserTest, CutsChangeNothing) {
  for (const std::string& answer : Answers()) {
    for (const bool open : {false, true}) {
      AnswerFormat format = Everything();
      format.reasoning_open = open;
      const std::string_view text = answer;
      const std::vector<AnswerPart> whole = Parse(format, text);
      for (size_t i = 0; i <= text.size(); ++i) {  // every cut into two, and into three
        for (size_t j = i; j <= text.size(); ++j) {
          ASSERT_EQ(Parse(format, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}),
                    whole)
              << answer << "\ncut at " << i << " and " << j;
        }
      }
      std::vector<std::string_view> bytes;
      for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
      ASSERT_EQ(Parse(format, bytes), whole) << answer;
    }
  }
}

// Made of the pieces that calls are made of, in any order: nothing is lost, cuts change nothing.
TEST(AnswerParserTest, RandomAnswersLoseNothing) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=look_up>",
                                          "<function=nope>",
                                          "</function>",
                                          "<parameter=city>",
                                          "</parameter>",
                                          "\n",
                                          " ",
                                          "Rome",
                                          "<think>",
                                          "</think>",
                                          "{",
                                          "}",
                                          "{\"name\": \"stop\"}",
                                          "\xC3\xA9",
                                          "<"};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Prng prng(seed);
    std::string text;
    const uint64_t count = prng.Below(14);
    for (uint64_t i = 0; i < count; ++i) text += words[prng.Below(words.size())];
    const std::vector<AnswerPart> whole = Parse(Tools(), text);
    std::vector<std::string_view> pieces;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t length = 1 + prng.Below(rest.size());
      pieces.push_back(rest.substr(0, length));
      rest.remove_prefix(length);
    }
    ASSERT_EQ(Parse(Tools(), pieces), whole) << text;
    std::string content;
    bool has_calls = false;
    for (const AnswerPart& part : whole) {
      has_calls = has_calls || part.kind == Kind::kCall;
      content += part.text;
    }
    if (!has_calls) {
      ASSERT_EQ(content, text) << "seed " << seed;
    }
  }
}

TEST(AnswerReaderTest, CountsTheTokensOfReasoning) {
  AnswerReader reader(Everything());
  for (const char* text : {"<think>", "\n", "one ", "two", "</think>", "\n\n", "Yes"}) {
    CompletionDelta delta;
    delta.text = text;
    delta.tokens = 1;
    reader.Read(delta);
  }
  EXPECT_EQ(reader.reasoning_tokens(), 3U);  // between the marks
}

TEST(AnswerReaderTest, PiecesAreWholeCharacters) {
  const std::string text =
      "a\xF0\x9F\xA7\xAA\xF0\x9F\xA7\xAA"
      "bcdefgh";
  std::string joined;
  for (const std::string_view piece : Pieces(text, 5)) {
    EXPECT_LE(piece.size(), 5U);
    EXPECT_TRUE(IsValidUtf8(piece));
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  EXPECT_THAT(Pieces("", 5), IsEmpty());
}

}  // namespace
}  // namespace hearth
