// Goal: every chunk is valid UTF-8 and the chunks joined equal Decode(). Method: scripted byte
// tokens that break characters in every way, at every length, and random ones.
#include "runtime/model/tokenizer/stream_decoder.h"

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/prng.h"
#include "runtime/model/tokenizer/utf8.h"
#include "tests/runtime/model/tokenizer/tokenizer_cases.h"

namespace hearth {
namespace {

constexpr std::string_view kBroken = kReplacementCharacter;

// Flashlet with two tokens that a scripted model may emit: "z\xF0" and "\x9F\xA7".
Tokenizer ScriptedTokenizer() {
  const std::string file = ChangedFlashlet([](nlohmann::json& d) {
    nlohmann::json& vocab = d["model"]["vocab"];
    vocab["z\u00F0"] = vocab.size();
    vocab["\u0141\u00A7"] = vocab.size();
  });
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(file, "scripted");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TokenId IdOf(const Tokenizer& tokenizer, std::string_view bytes) {
  for (uint32_t i = 0; i < tokenizer.vocab_count(); ++i) {
    if (tokenizer.TokenBytes(static_cast<TokenId>(i)) == bytes) return static_cast<TokenId>(i);
  }
  ADD_FAILURE() << "no such token";
  return -1;
}

// Pushes `ids`, checks each chunk, and returns the chunks joined.
std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     SkipSpecial skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string joined;
  for (const TokenId id : ids) {
    const std::string chunk = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(chunk));
    joined += chunk;
  }
  const std::string last = decoder.Finish();
  EXPECT_TRUE(IsValidUtf8(last));
  EXPECT_EQ(decoder.Finish(), "");
  return joined + last;
}

TEST(StreamDecoder, HoldsACharacterUntilItIsWhole) {
  const Tokenizer tokenizer = ScriptedTokenizer();
  StreamDecoder decoder(tokenizer);
  const auto push = [&](std::string_view bytes) { return decoder.Push(IdOf(tokenizer, bytes)); };
  EXPECT_EQ(push("z\xF0"), "z");
  EXPECT_EQ(push("\x9F\xA7"), "");
  EXPECT_EQ(push("\xAA"), "\U0001f9ea");
  EXPECT_EQ(push("\xE6"), "");
  EXPECT_EQ(push("\xAD"), "");
  EXPECT_EQ(push("\xAA"), "\u6b6a");
  EXPECT_EQ(push("\xFF"), kBroken);
  EXPECT_EQ(push("\xE6"), "");
  EXPECT_EQ(push("a"), std::string(kBroken) + "a");
  EXPECT_EQ(push("\x80"), kBroken);
  EXPECT_EQ(push("\xF0"), "");
  EXPECT_EQ(push("\x9F"), "");
  EXPECT_EQ(decoder.Finish(), kBroken);
  EXPECT_EQ(push("a"), "a");  // starts anew
}

TEST(StreamDecoder, StoppingAfterAnyTokenEqualsDecode) {
  const Tokenizer tokenizer = ScriptedTokenizer();
  std::vector<TokenId> script;
  for (const std::string_view bytes :
       {"\xF0",  "\x9F",     "\xA7", "\xAA",  "\xE6",  "\xAD", "\xAA", "\xFF",
        "z\xF0", "\x9F\xA7", "\xAA", "z\xF0", "z\xF0", "\xED", "\xA0", "\x80",
        "\xC0",  "\x80",     "\xF4", "\x90",  "\xE2",  "\x82"}) {
    script.push_back(IdOf(tokenizer, bytes));
  }
  for (size_t count = 0; count <= script.size(); ++count) {
    const std::vector<TokenId> ids(script.begin(), script.begin() + static_cast<ptrdiff_t>(count));
    EXPECT_EQ(Streamed(tokenizer, ids, SkipSpecial::kNo), tokenizer.Decode(ids, SkipSpecial::kNo))
        << count << " tokens";
  }
}

TEST(StreamDecoder, RandomTokensEqualDecode) {
  const Tokenizer tokenizer = ScriptedTokenizer();
  Prng prng(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(prng.Below(20));
    // Ids 0..8 are special, the 256 single bytes follow, then the merged tokens.
    for (TokenId& id : ids) id = static_cast<TokenId>(prng.Below(prng.Below(4) == 0 ? 8196 : 265));
    for (const SkipSpecial skip : {SkipSpecial::kNo, SkipSpecial::kYes}) {
      ASSERT_EQ(Streamed(tokenizer, ids, skip), tokenizer.Decode(ids, skip)) << "round " << round;
    }
  }
}

TEST(StreamDecoder, SkippedSpecialTokensDoNotBreakACharacter) {
  const Tokenizer tokenizer = ScriptedTokenizer();
  const std::vector<TokenId> ids = {IdOf(tokenizer, "\xC3"), 2, IdOf(tokenizer, "\xA9")};
  EXPECT_EQ(Streamed(tokenizer, ids, SkipSpecial::kYes), "\u00e9");
  const std::string shown = std::string(kBroken) + "<|im_end|>" + std::string(kBroken);
  EXPECT_EQ(Streamed(tokenizer, ids, SkipSpecial::kNo), shown);
}

TEST(Utf8Joiner, HoldsAtMostThreeBytes) {
  Utf8Joiner joiner;
  std::string text(100000, '\x80');
  EXPECT_EQ(joiner.Push(text).size(), text.size() * kBroken.size());
  EXPECT_EQ(joiner.Push("\xF0\x9F\xA7"), "");
  EXPECT_EQ(joiner.Finish(), kBroken);
}

}  // namespace
}  // namespace hearth
