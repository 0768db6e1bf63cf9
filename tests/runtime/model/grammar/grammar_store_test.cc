// Constrained decoding with the tokenizer that ships, end to end, and from several threads.
#include "runtime/model/grammar/grammar_store.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/tokenizer_json.h"
#include "tests/runtime/model/grammar/grammar_fixture.h"
#include "tests/runtime/model/grammar/schema_check.h"
#include "tests/runtime/model/grammar/test_random.h"

namespace hearth {
namespace {

using grammar::IsSet;
using grammar::Random;
using grammar::TokensOf;
using grammar::WhyNot;
using ::testing::HasSubstr;

const Tokenizer& Flashlet() {
  static const Tokenizer* const kTokenizer = [] {
    const auto json =
        ReadFile(HEARTH_SOURCE_DIR "/profiles/flashlet/tokenizer.json", kTokenizerJsonBytesMax);
    HEARTH_CHECK(json.ok());
    auto tokenizer = Tokenizer::FromJson(*json, "tokenizer.json");
    HEARTH_CHECK(tokenizer.ok());
    return new Tokenizer(*std::move(tokenizer));
  }();
  return *kTokenizer;
}

std::unique_ptr<GrammarStore> MakeStore(GrammarStore::Options options = {}) {
  options.stop_tokens = {0, 2};
  auto store = GrammarStore::Create(Flashlet(), std::move(options));
  HEARTH_CHECK(store.ok());
  return *std::move(store);
}

constexpr const char* kPerson = R"({"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "mail": {"type": "string", "format": "email"},
    "friends": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
    "required": ["name", "age"], "additionalProperties": false})";

// Pushes the tokens that the tokenizer itself makes of the text.
bool AcceptsEncoded(TokenConstraint& constraint, const std::string& text) {
  for (const TokenId token : Flashlet().Encode(text, SpecialTokens::kParse)) {
    if (!IsSet(constraint.Allowed(), token)) return false;
    constraint.Push(token);
  }
  return IsSet(constraint.Allowed(), 2);
}

std::string RandomAnswer(TokenConstraint& constraint, Random& random) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<TokenId> allowed = TokensOf(constraint.Allowed());
    HEARTH_CHECK(!allowed.empty());
    std::vector<TokenId> closing;
    for (const TokenId token : allowed) {
      const std::string_view text = Flashlet().TokenBytes(token);
      if (text == "\"" || text == "}" || text == "]" || token == 2) closing.push_back(token);
    }
    const std::vector<TokenId>& choices = i > 60 && !closing.empty() ? closing : allowed;
    const TokenId token = choices[random() % choices.size()];
    if (token == 0 || token == 2) break;
    constraint.Push(token);
    tokens.push_back(token);
  }
  return Flashlet().Decode(tokens, SkipSpecial::kNo);
}

TEST(GrammarStore, FlashletWritesWhatTheSchemaWants) {
  const auto store = MakeStore();
  Random random(4);
  for (int i = 0; i < 40; ++i) {
    const auto constraint = store->ForSchema(kPerson);
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::string text = RandomAnswer(**constraint, random);
    EXPECT_EQ(WhyNot(kPerson, text), "") << text;
    const auto again = store->ForSchema(kPerson);
    EXPECT_TRUE(AcceptsEncoded(**again, text)) << text;
  }
  const auto object = store->ForAnyObject();
  EXPECT_TRUE(AcceptsEncoded(**object, R"({"a": [1, {"b": null}], "ünï": "x\n"})"));
  const auto other = store->ForAnyObject();
  EXPECT_FALSE(AcceptsEncoded(**other, "[1]"));
}

TEST(GrammarStore, AddedTokensNeverComeInsideAValue) {
  const auto store = MakeStore();
  const auto constraint = store->ForAnyObject();
  for (const TokenId token : Flashlet().Encode("{\"a", SpecialTokens::kAsText)) {
    for (TokenId added = 0; added < 9; ++added) {
      EXPECT_FALSE(IsSet((*constraint)->Allowed(), added));
    }
    (*constraint)->Push(token);
  }
  EXPECT_FALSE(IsSet((*constraint)->Allowed(), 2));
}

TEST(GrammarStore, ToolCallsUseTheTokenizersMarks) {
  const auto store = MakeStore();
  const ToolSignature tools[] = {
      {"weather", R"({"type": "object", "properties": {"city": {"type": "string"}},
                      "required": ["city"]})"}};
  const auto constraint = store->ForToolCalls(tools, true);
  ASSERT_TRUE(constraint.ok());
  const std::string call =
      "<tool_call>\n<function=weather>\n<parameter=city>\nPrag\n</parameter>\n</function>\n"
      "</tool_call>";
  EXPECT_TRUE(AcceptsEncoded(**constraint, call + "\n" + call));
  const auto one = store->ForToolCalls(tools, false);
  EXPECT_FALSE(AcceptsEncoded(**one, call + "\n" + call));
}

TEST(GrammarStore, MasksCoverAllTheModelChoosesFrom) {
  GrammarStore::Options options;
  options.vocab_count = Flashlet().vocab_count() + 1000;
  const auto store = MakeStore(options);
  const auto constraint = store->ForAnyObject();
  const std::span<const uint64_t> mask = (*constraint)->Allowed();
  EXPECT_EQ(mask.size(), (options.vocab_count + 63) / 64);
  for (const TokenId token : TokensOf(mask)) {
    EXPECT_LT(static_cast<uint32_t>(token), Flashlet().vocab_count());
  }
}

TEST(GrammarStore, RefusesWhatCouldEndInADeadEnd) {
  GrammarStore::Options options;
  EXPECT_THAT(std::string(GrammarStore::Create(Flashlet(), options).status().message()),
              HasSubstr("stop token"));
  options.stop_tokens = {1 << 20};
  EXPECT_THAT(std::string(GrammarStore::Create(Flashlet(), options).status().message()),
              HasSubstr("outside the vocabulary"));
  const char* json = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "decoder": {"type": "ByteLevel"}})";
  const auto tokenizer = Tokenizer::FromJson(json, "tiny.json");
  if (tokenizer.ok()) {
    options.stop_tokens = {0};
    EXPECT_THAT(std::string(GrammarStore::Create(*tokenizer, options).status().message()),
                HasSubstr("no token for the byte"));
  }
}

TEST(GrammarStore, ErrorsOfSchemasComeBack) {
  const auto store = MakeStore();
  EXPECT_EQ(store->ForSchema("{").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->ForSchema(R"({"not": {}})").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(store->ForSchema("{}").ok());
}

// Many threads and a budget so small that grammars come and go: each answer is as it is alone.
TEST(GrammarStore, ManyThreadsGetTheSameMasks) {
  GrammarStore::Options options;
  options.grammars_bytes = 20'000;
  options.constraint_bytes = 100'000;
  const auto shared = MakeStore(options);
  const auto answers = [](GrammarStore& store, int seed) {
    std::string all;
    Random random(static_cast<uint32_t>(seed));
    for (int i = 0; i < 12; ++i) {
      const std::string schema = i % 3 == 0 ? kPerson
                                            : R"({"type": "array", "items": {"type": "string",
          "pattern": "^[a-z]{2,9}$"}, "maxItems": )" +
                                                  std::to_string(1 + i % 4) + "}";
      const auto constraint = store.ForSchema(schema);
      HEARTH_CHECK(constraint.ok());
      all += RandomAnswer(**constraint, random) + "\n";
    }
    return all;
  };
  std::vector<std::string> expected(4), found(4);
  for (int i = 0; i < 4; ++i) expected[i] = answers(*MakeStore(), i);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { found[i] = answers(*shared, i); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace hearth
