// The made-up tokenizer: it reads and writes any text, its control tokens stand where the geometry
// says, and every id of the vocabulary stands for something.
#include "pack/synth/synthetic_texts.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

#include "pack/synth/synthetic_geometry.h"
#include "runtime/model/chat/chat_template.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {
namespace {

std::string TextOf(const ModelGeometry& geometry, std::string_view name) {
  for (const auto& [found, text] : SyntheticTexts(geometry)) {
    if (found == name) return text;
  }
  ADD_FAILURE() << name;
  return "";
}

TEST(SyntheticTokenizer, CoversTheVocabularyOfEveryModel) {
  for (const SyntheticModel model : kSyntheticModels) {
    const ModelGeometry g = NamedGeometry(model);
    const auto tokenizer = Tokenizer::FromJson(SyntheticTokenizerJson(g), "tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(tokenizer->vocab_count(), g.vocab_count);
    EXPECT_EQ(tokenizer->FindToken("<|endoftext|>"), g.ngram.eos_token);
    EXPECT_EQ(tokenizer->FindToken("<|im_end|>"), g.stop_tokens[0]);
    EXPECT_TRUE(tokenizer->IsSpecial(g.ngram.eos_token));
    std::set<std::string_view> spellings;
    for (uint32_t id = 0; id < g.vocab_count; ++id) {
      const std::string_view bytes = tokenizer->TokenBytes(static_cast<TokenId>(id));
      EXPECT_FALSE(bytes.empty()) << id;
      EXPECT_TRUE(spellings.insert(bytes).second) << id << " is " << bytes << " too";
    }
  }
}

TEST(SyntheticTokenizer, ReadsAndWritesAnyTextByteByByte) {
  const ModelGeometry g = NamedGeometry(SyntheticModel::kFlashlet);
  const auto tokenizer = Tokenizer::FromJson(SyntheticTokenizerJson(g), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "He said: \"3\\4\"\t\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x94\xA5\n\x01 bado";
  const auto ids = tokenizer->Encode(text, SpecialTokens::kAsText);
  EXPECT_EQ(ids.size(), text.size());
  EXPECT_EQ(tokenizer->Decode(ids, SkipSpecial::kNo), text);
}

TEST(SyntheticTexts, TheTemplateWrapsAUserTurn) {
  const ModelGeometry g = NamedGeometry(SyntheticModel::kSmall);
  const auto chat = ChatTemplate::Parse(TextOf(g, "chat_template.jinja"), "chat_template.jinja");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = chat->Render(SingleUserTurn("hello"));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace hearth
