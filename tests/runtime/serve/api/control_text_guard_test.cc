// What a client wrote never becomes a control token, wherever it stands and whatever stands around.
#include "runtime/serve/api/control_text_guard.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/chat/jinja_text.h"
#include "tests/runtime/serve/api/api_fixture.h"

namespace hearth {
namespace {

constexpr const char* kControl[] = {"<|endoftext|>", "<|im_start|>",    "<|im_end|>",
                                    "<think>",       "</think>",        "<tool_call>",
                                    "</tool_call>",  "<tool_response>", "</tool_response>"};

std::vector<TokenId> ControlTokensOf(const std::vector<TokenId>& tokens, const Tokenizer& t) {
  std::vector<TokenId> found;
  for (const TokenId token : tokens) {
    if (t.IsAdded(token)) found.push_back(token);
  }
  return found;
}

TEST(ControlTextGuardTest, PlainTextStaysAsItIs) {
  const ApiModel model;
  ControlTextGuard::Marks marks;
  for (const char* text : {"", "Hello", "a < b and c > d.", "x|y", "  think about it  ", "\n"}) {
    EXPECT_EQ(model.facts.guard->Guard(text, marks), text);
    EXPECT_EQ(model.facts.guard->GuardWord(text, marks), text);
  }
  EXPECT_EQ(model.facts.guard->GuardWord("think", marks), "think");
  EXPECT_TRUE(marks.texts.empty());
}

TEST(ControlTextGuardTest, EncodesAsTheTextItIs) {
  const ApiModel model;
  const Tokenizer& t = *model.facts.tokenizer;
  for (const std::string control : kControl) {
    for (const std::string& text : {control, "a" + control + "b", control + control,
                                    " " + control + "\n", control.substr(1), "<" + control}) {
      ControlTextGuard::Marks marks;
      const std::string guarded = model.facts.guard->Guard(text, marks);
      EXPECT_EQ(*model.facts.guard->Text(guarded, marks), text);
      EXPECT_EQ(*model.facts.guard->Encode(guarded, marks), t.Encode(text, SpecialTokens::kAsText))
          << text;
    }
  }
}

TEST(ControlTextGuardTest, TheTemplatesOwnControlTokensStay) {
  const ApiModel model;
  const Tokenizer& t = *model.facts.tokenizer;
  ControlTextGuard::Marks marks;
  const std::string guarded = model.facts.guard->Guard("<|im_end|>", marks);
  const auto tokens =
      model.facts.guard->Encode("<|im_start|>user\n" + guarded + "<|im_end|>", marks);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(ControlTokensOf(*tokens, t),
            (std::vector<TokenId>{*t.FindToken("<|im_start|>"), *t.FindToken("<|im_end|>")}));
  EXPECT_EQ(model.Text(*tokens), "<|im_start|>user\n<|im_end|><|im_end|>");
}

// A template that prints half a control token, a client that writes the other half; and halves in
// two texts side by side.
TEST(ControlTextGuardTest, HalvesNeverMakeAWhole) {
  const ApiModel model;
  const Tokenizer& t = *model.facts.tokenizer;
  for (const std::string control : kControl) {
    for (size_t i = 0; i <= control.size(); ++i) {
      for (size_t j = i; j <= control.size(); ++j) {
        const std::string before = control.substr(0, i);
        const std::string middle = control.substr(i, j - i);
        const std::string after = control.substr(j);
        if (middle.empty()) continue;
        for (const std::string& text : {middle, " " + middle + "\n", "\xC2\xA0" + middle}) {
          ControlTextGuard::Marks marks;
          const std::string guarded = model.facts.guard->Guard(text, marks);
          const std::string trimmed(jinja::Strip(guarded, jinja::Sides::kBoth));
          for (const std::string& rendered : {before + guarded + after, before + trimmed + after}) {
            const auto tokens = model.facts.guard->Encode(rendered, marks);
            ASSERT_TRUE(tokens.ok());
            EXPECT_TRUE(ControlTokensOf(*tokens, t).empty()) << before << "|" << text;
          }
        }
        ControlTextGuard::Marks marks;
        const std::string two = model.facts.guard->Guard(control.substr(0, j), marks) +
                                model.facts.guard->Guard(after, marks);
        EXPECT_TRUE(ControlTokensOf(*model.facts.guard->Encode(two, marks), t).empty());
      }
    }
  }
}

TEST(ControlTextGuardTest, MarksCannotBeForged) {
  const ApiModel model;
  const std::string forged =
      "\xEF\xB7\x90"
      "0\xEF\xB7\x91";
  ControlTextGuard::Marks marks;
  const std::string a = model.facts.guard->Guard("secret <|im_end|>", marks);
  const std::string b = model.facts.guard->Guard(forged, marks);
  EXPECT_EQ(*model.facts.guard->Text(b, marks), forged);
  EXPECT_EQ(*model.facts.guard->Text(a + b, marks), "secret <|im_end|>" + forged);
}

TEST(ControlTextGuardTest, RefusesMarksThatATemplateCut) {
  const ApiModel model;
  ControlTextGuard::Marks marks;
  const std::string guarded = model.facts.guard->Guard("<|im_end|>", marks);
  for (const std::string& rendered : {guarded.substr(0, 4), guarded.substr(0, 3),
                                      std::string("\xEF\xB7\x90"
                                                  "9\xEF\xB7\x91"),
                                      std::string("\\ufdd00\\ufdd1")}) {
    EXPECT_EQ(model.facts.guard->Encode(rendered, marks).status().code(),
              absl::StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace hearth
