// Masks against their definition, dead ends, bounds, and going back, over made-up vocabularies.
#include "runtime/model/grammar/grammar_constraint.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/grammar/grammar.h"
#include "runtime/model/grammar/json_schema.h"
#include "runtime/model/grammar/machine.h"
#include "runtime/model/grammar/token_masks.h"
#include "runtime/model/grammar/token_trie.h"
#include "tests/runtime/model/grammar/grammar_fixture.h"
#include "tests/runtime/model/grammar/test_random.h"

namespace hearth::grammar {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kNested = R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "kind": {"enum": ["ab", "abc", "cd"]},
    "list": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer", "minimum": 5}},
    "required": ["name"]})";

// What may come by definition: each token's bytes are tried one by one.
std::vector<TokenId> AllowedByDefinition(Machine& machine, ConfigId config,
                                         const GrammarFixture& fixture) {
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < fixture.stop(); ++token) {
    ConfigId at = config;
    for (const char c : fixture.Text(token)) at = machine.Step(at, static_cast<uint8_t>(c));
    if (at != kDeadConfig) allowed.push_back(token);
  }
  return allowed;
}

TEST(TokenMasks, AreWhatTheMachineSaysOfEachToken) {
  const GrammarFixture fixture;
  Random random(42);
  int steps = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string schema = RandomSchema(random);
    const auto grammar = CompileJsonSchema(schema, fixture.leaves(), {});
    if (!grammar.ok()) continue;
    Machine machine(*grammar);
    Machine twin(*grammar);
    TokenMasks masks(fixture.trie(), fixture.Sources());
    ConfigId config = machine.Start();
    ConfigId twin_config = twin.Start();
    std::vector<uint64_t> mask(fixture.trie()->words());
    for (int i = 0; i < 60; ++i, ++steps) {
      masks.Compute(machine, config, mask);
      const std::vector<TokenId> allowed = TokensOf(mask);
      ASSERT_EQ(allowed, AllowedByDefinition(twin, twin_config, fixture)) << schema;
      if (allowed.empty()) break;
      const TokenId token = allowed[random() % allowed.size()];
      for (const char c : fixture.Text(token)) {
        config = machine.Step(config, static_cast<uint8_t>(c));
        twin_config = twin.Step(twin_config, static_cast<uint8_t>(c));
      }
      ASSERT_EQ(machine.Finished(config), twin.Finished(twin_config));
    }
  }
  EXPECT_GT(steps, 2000);
}

// Alternatives that multiply with each level: what is followed is bounded, and still every choice
// leads to an end.
TEST(TokenMasks, ManyWaysAtOnceStayBounded) {
  const GrammarFixture fixture;
  std::string alternatives;
  for (int i = 0; i < 6; ++i) {
    alternatives += std::string(i ? "," : "") +
                    R"({"type":"array","items":{"$ref":"#"},"maxItems":)" + std::to_string(i + 3) +
                    "}";
  }
  const std::string schema = R"({"anyOf":[{"type":"integer"},)" + alternatives + "]}";
  Random random(2);
  const auto grammar = fixture.Compile(schema);
  Machine machine(grammar);
  ConfigId config = machine.Start();
  for (int i = 0; i < 12; ++i) {
    config = machine.Step(config, '[');
    ASSERT_NE(config, kDeadConfig);
    EXPECT_LE(machine.Threads(config).size(), kThreadsMax);
  }
  for (int walk = 0; walk < 5; ++walk) {
    const auto constraint = fixture.Constrain(grammar);
    for (int i = 0; i < 8; ++i) constraint->Push('[');
    fixture.Walk(*constraint, random, 20);
  }
}

TEST(GrammarConstraint, StopsOnlyWhereTheValueIsComplete) {
  const GrammarFixture fixture;
  const auto constraint = fixture.Constrain(R"({"type": "integer", "maximum": 99})");
  EXPECT_FALSE(IsSet(constraint->Allowed(), fixture.stop()));
  constraint->Push('4');
  EXPECT_TRUE(IsSet(constraint->Allowed(), fixture.stop()));
  EXPECT_TRUE(IsSet(constraint->Allowed(), '2'));
  constraint->Push('2');
  EXPECT_THAT(TokensOf(constraint->Allowed()), ElementsAre(fixture.stop()));
  constraint->Push(fixture.stop());
  EXPECT_THAT(TokensOf(constraint->Allowed()), ElementsAre(fixture.stop()));
  constraint->Push(fixture.stop());
  EXPECT_TRUE(constraint->Complete());
  constraint->PopTo(1);
  EXPECT_TRUE(IsSet(constraint->Allowed(), '2'));
  constraint->PopTo(0);
  EXPECT_FALSE(constraint->Complete());
  EXPECT_FALSE(IsSet(constraint->Allowed(), fixture.stop()));
}

TEST(GrammarConstraint, GoesBackToAnyTokenBefore) {
  const GrammarFixture fixture;
  Random random(5);
  const auto grammar = fixture.Compile(kNested);
  for (const uint64_t budget : {uint64_t{1}, GrammarFixture::kBudgetBytes}) {
    const auto constraint = fixture.Constrain(grammar, budget);
    std::vector<std::vector<TokenId>> allowed;  // before token i
    std::vector<TokenId> tokens;
    for (int i = 0; i < 3000; ++i) {
      if (!tokens.empty() && random() % 6 == 0) {
        // Mostly a few back, as drafts go; now and then far.
        const size_t back = random() % 40 == 0 ? random() % tokens.size() : random() % 9;
        const size_t keep = tokens.size() - std::min(back, tokens.size());
        constraint->PopTo(static_cast<uint32_t>(keep));
        tokens.resize(keep);
        allowed.resize(keep);
      }
      std::vector<TokenId> now = TokensOf(constraint->Allowed());
      ASSERT_FALSE(now.empty());
      if (now == std::vector<TokenId>{fixture.stop()}) {
        constraint->PopTo(0);
        tokens.clear();
        allowed.clear();
        continue;
      }
      const TokenId token = now[random() % now.size()];
      if (token == fixture.stop()) continue;
      allowed.push_back(now);
      tokens.push_back(token);
      constraint->Push(token);
      if (i % 50 == 0) {  // the same tokens, straight on
        const auto straight = fixture.Constrain(grammar);
        for (size_t k = 0; k < tokens.size(); ++k) {
          ASSERT_EQ(TokensOf(straight->Allowed()), allowed[k]);
          straight->Push(tokens[k]);
        }
        ASSERT_EQ(TokensOf(straight->Allowed()), TokensOf(constraint->Allowed()));
      }
    }
  }
}

TEST(GrammarConstraint, StaysWithinItsBudget) {
  const GrammarFixture fixture;
  const auto constraint =
      fixture.Constrain(fixture.Compile(R"({"type": "array", "maxItems": 900000})"), 64_KiB);
  constraint->Push('[');
  uint64_t most = 0;
  for (int i = 0; i < 3000; ++i) {  // every count of items is a state of its own
    for (const char c : std::string_view("\"ab\",")) {
      ASSERT_TRUE(IsSet(constraint->Allowed(), c));
      constraint->Push(c);
    }
    most = std::max(most, constraint->MemoryBytes());
  }
  EXPECT_LT(most, 1_MiB);
}

TEST(GrammarConstraint, NestingEndsAndStillCloses) {
  const GrammarFixture fixture;
  const auto constraint = fixture.Constrain(R"({"type": "array"})");
  uint32_t depth = 0;
  while (IsSet(constraint->Allowed(), '[')) {
    constraint->Push('[');
    ASSERT_LE(++depth, kStackFramesMax);
  }
  EXPECT_GE(depth, kStackFramesMax - 4);
  for (uint32_t i = 0; i < depth; ++i) {
    ASSERT_TRUE(IsSet(constraint->Allowed(), ']'));
    constraint->Push(']');
  }
  EXPECT_TRUE(constraint->Complete());
}

// A model that picks whitespace whenever it may comes to an end all the same.
TEST(GrammarConstraint, WhitespaceIsBounded) {
  const GrammarFixture fixture;
  for (const JsonWhitespace whitespace :
       {JsonWhitespace::kSingleSpaces, JsonWhitespace::kIndented}) {
    GrammarOptions options;
    options.whitespace = whitespace;
    const auto constraint = fixture.Constrain(
        fixture.Compile(R"({"type": "object", "properties": {"a": {"type": "array", "minItems": 1,
                        "maxItems": 2}}, "required": ["a"], "additionalProperties": false})",
                        options));
    int spaces = 0;
    for (int i = 0; i < 2000 && !constraint->Complete(); ++i) {
      const std::vector<TokenId> allowed = TokensOf(constraint->Allowed());
      TokenId choice = allowed[0];
      bool space = false;
      for (const TokenId token : allowed) {
        const std::string_view text = fixture.Text(token);
        if (text.find_first_not_of(" \n") == std::string_view::npos) {
          choice = token;
          space = true;
        }
      }
      if (!space) {  // what closes, or else the first
        for (const TokenId token : allowed) {
          if (token == ']' || token == '}' || (token >= '0' && token <= '9')) choice = token;
        }
      }
      spaces += space ? 1 : 0;
      ASSERT_LT(spaces, 700);
      constraint->Push(choice);
    }
    EXPECT_TRUE(constraint->Complete());
  }
}

TEST(TokenTrie, HoldsEveryTokenOnce) {
  const std::vector<std::string_view> bytes = {"b", "", "ab", "a", "abc", "ab", "ba"};
  const auto trie = TokenTrie::FromBytes(bytes);
  EXPECT_EQ(trie->vocab_count(), 7u);
  EXPECT_EQ(trie->depth(), 3u);
  EXPECT_TRUE(trie->HasByte('a'));
  EXPECT_FALSE(trie->HasByte('c'));
  EXPECT_EQ(trie->Bytes(4), "abc");
  EXPECT_EQ(trie->Bytes(1), "");
  ASSERT_EQ(trie->nodes().size(), 5u);  // a, ab, abc, b, ba
  EXPECT_THAT(trie->TokensAt(0), ElementsAre(3));
  EXPECT_THAT(trie->TokensAt(1), ElementsAre(2, 5));
  EXPECT_EQ(trie->nodes()[0].skip, 3u);
  EXPECT_EQ(trie->nodes()[4].skip, 5u);
  EXPECT_THAT(TokenTrie::FromBytes({})->nodes(), IsEmpty());
}

}  // namespace
}  // namespace hearth::grammar
