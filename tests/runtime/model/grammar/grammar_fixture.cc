#include "tests/runtime/model/grammar/grammar_fixture.h"
#include "tests/runtime/model/grammar/test_random.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/model/grammar/json_schema.h"

namespace hearth::grammar {
namespace {

using Json = nlohmann::ordered_json;

uint32_t Below(Random& random, uint32_t count) { return random() % count; }

// Ends a walk: of what may come, one that closes something.
TokenId Closing(const GrammarFixture& fixture, std::span<const TokenId> allowed, Random& random) {
  std::vector<TokenId> closing;
  for (const TokenId token : allowed) {
    const std::string_view text = fixture.Text(token);
    for (const std::string_view end :
         {"\"", "}", "]", "\n</", "parameter", ">", "\n", "a", "été"}) {
      if (text == end) closing.push_back(token);
    }
  }
  const std::span<const TokenId> choices = closing.empty() ? allowed : closing;
  return choices[Below(random, static_cast<uint32_t>(choices.size()))];
}

Json RandomText(Random& random) {
  Json schema = {{"type", "string"}};
  switch (Below(random, 6)) {
    case 0:
      schema["minLength"] = Below(random, 5);
      break;
    case 1:
      schema["minLength"] = Below(random, 3);
      schema["maxLength"] = 2 + Below(random, 9);
      break;
    case 2:
      schema["pattern"] =
          std::vector<const char*>{"^a+b*$",  "x[0-9]{2,4}", "^(ab|cd|\\u00e9){1,3}",
                                   "[^\\w]$", "\\\\|\"",     "^$"}[Below(random, 6)];
      break;
    case 3:
      schema["format"] = std::vector<const char*>{"date", "time",  "uuid",
                                                  "ipv4", "email", "date-time"}[Below(random, 6)];
      break;
    default:
      break;
  }
  return schema;
}

Json RandomNumber(Random& random) {
  Json schema = {{"type", Below(random, 2) == 0 ? "integer" : "number"}};
  const int64_t low = static_cast<int64_t>(Below(random, 4000)) - 2000;
  if (Below(random, 2) == 0) schema["minimum"] = low;
  if (Below(random, 3) == 0) schema["exclusiveMaximum"] = low + Below(random, 3000);
  if (Below(random, 3) == 0) schema["maximum"] = static_cast<double>(low) + 0.75;
  if (Below(random, 6) == 0) schema["multipleOf"] = 1 + Below(random, 12);
  return schema;
}

Json RandomNode(Random& random, int depth);

Json RandomObject(Random& random, int depth) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  const std::vector<std::string> names = {"a", "b", "na\"me", "\xC3\xA9t\xC3\xA9", "list", "x y"};
  for (const std::string& name : names) {
    if (Below(random, 3) != 0) continue;
    schema["properties"][name] = RandomNode(random, depth - 1);
    if (Below(random, 2) == 0) required.push_back(name);
  }
  schema["required"] = std::move(required);
  const uint32_t more = Below(random, 4);
  if (more < 2) schema["additionalProperties"] = false;
  if (more == 2) schema["additionalProperties"] = RandomNode(random, depth - 1);
  if (Below(random, 5) == 0) schema["maxProperties"] = 1 + Below(random, 4);
  if (more < 2 && Below(random, 5) == 0) schema["minProperties"] = Below(random, 3);
  return schema;
}

Json RandomArray(Random& random, int depth) {
  Json schema = {{"type", "array"}};
  if (Below(random, 4) == 0) {
    schema["prefixItems"] = {RandomNode(random, depth - 1), RandomNode(random, depth - 1)};
  }
  if (Below(random, 4) != 0) schema["items"] = RandomNode(random, depth - 1);
  if (Below(random, 3) == 0) schema["minItems"] = Below(random, 4);
  if (Below(random, 3) == 0) schema["maxItems"] = 1 + Below(random, 4);
  return schema;
}

Json RandomNode(Random& random, int depth) {
  const uint32_t kind = Below(random, depth > 0 ? 12 : 6);
  switch (kind) {
    case 0:
      return RandomText(random);
    case 1:
      return RandomNumber(random);
    case 2:
      return {{"type", {"boolean", "null"}}};
    case 3:
      return {{"enum", {"one", 2, "t\\w\"o", nullptr, 2.5, "\xE2\x82\xAC"}}};
    case 4:
      return {{"type", "string"}, {"nullable", true}};
    case 5:
      return {{"const", Below(random, 2) == 0 ? Json(17) : Json({{"k", {1, 2}}})}};
    case 6:
      return {{"anyOf", {RandomNode(random, depth - 1), RandomNode(random, depth - 1)}}};
    case 7:
      return {{"allOf", {RandomObject(random, depth - 1), RandomObject(random, depth - 1)}}};
    case 8:
      return {{"$ref", "#"}};
    case 9:
      return RandomArray(random, depth);
    default:
      return RandomObject(random, depth);
  }
}

}  // namespace

std::vector<std::string> TestTokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece : {"{\"",       "\":",        "\": ",
                            "\", ",      "\", \"",     "\",\"",
                            "\"}",       "\"}}",       "\"]",
                            "}}",        "]}",         "}]",
                            "}, {",      "},",         "],",
                            "[[",        "[{\"",       "[]",
                            "{}",        "[\"",        ": \"",
                            ":\"",       " \"",        " {",
                            " [",        "true",       " true",
                            "false",     "null",       " null",
                            "nul",       "12",         "123",
                            "000",       "99",         "-1",
                            "0.",        ".5",         "e1",
                            "E+",        "1,",         "1}",
                            "1]",        "2,",         "\\u",
                            "\\u00",     "\\\"",       "\\\\",
                            "\\n",       "\\ud83d",    "\\ude00",
                            "ud83d",     "the",        " the",
                            "ab",        "aab",        "abc",
                            "cd",        "one",        "a\":",
                            "b\":",      "\"a\"",      "\"a\":",
                            "list",      "\n",         "\n\n",
                            "\n  ",      "  ",         "        ",
                            "é",         "ét",         "été",
                            "€",         "\xE2\x82",   "\x82\xAC",
                            "\xF0\x9F",  "\x98\x80",   "😀",
                            "\xA9\"",    "\"\n",       "},\n",
                            "2024",      "-01",        ":00",
                            "T12",       "Z\"",        "@",
                            "ex",        ".com",       "</",
                            "<param",    "eter=",      ">\n",
                            "parameter", "\n</",       "</parameter>",
                            "function",  "<function=", "aaaaaaaaaaaaaaaa",
                            "\"\"",      "\"},\"",     "\\\\\"",
                            "x12",       "b\"",        "ab\"",
                            "ab\",",     "abcdefgh\"}"}) {
    tokens.push_back(piece);
  }
  return tokens;
}

GrammarFixture::GrammarFixture() : tokens_(TestTokens()) {
  std::vector<std::string_view> bytes(tokens_.begin(), tokens_.end());
  stop_ = static_cast<TokenId>(bytes.size());
  bytes.push_back("");  // the stop token stands for no bytes
  tokens_.push_back("");
  bytes = {tokens_.begin(), tokens_.end()};
  trie_ = TokenTrie::FromBytes(bytes);
  leaves_ = CommonLeaves::Make();
  common_ = std::make_shared<const std::vector<const Dfa*>>(leaves_->Sorted());
  common_masks_ = std::make_shared<LeafMasks>(trie_, 1_MiB);
}

LeafMaskSources GrammarFixture::Sources() const {
  return {.common = common_masks_,
          .own = std::make_shared<LeafMasks>(trie_, 1_MiB),
          .common_leaves = common_,
          .owner = leaves_};
}

std::shared_ptr<const Grammar> GrammarFixture::Compile(std::string_view schema,
                                                       const GrammarOptions& options) const {
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar =
      CompileJsonSchema(schema, *leaves_, options);
  EXPECT_TRUE(grammar.ok()) << grammar.status() << " in " << schema;
  HEARTH_CHECK(grammar.ok());
  return *std::move(grammar);
}

std::unique_ptr<GrammarConstraint> GrammarFixture::Constrain(std::shared_ptr<const Grammar> grammar,
                                                             uint64_t budget_bytes) const {
  return std::make_unique<GrammarConstraint>(std::move(grammar), trie_, Sources(),
                                             std::vector<TokenId>{stop_}, budget_bytes);
}

bool GrammarFixture::Accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text,
                             Random& random) const {
  const auto constraint = Constrain(grammar);
  while (!text.empty()) {
    const std::span<const uint64_t> mask = constraint->Allowed();
    std::vector<TokenId> fitting;
    for (size_t token = 0; token < tokens_.size(); ++token) {
      if (tokens_[token].empty() || !text.starts_with(tokens_[token])) continue;
      // Whatever begins the rest of an accepted text is allowed: one that is not refuses the text.
      if (!IsSet(mask, static_cast<TokenId>(token))) return false;
      fitting.push_back(static_cast<TokenId>(token));
    }
    const TokenId token = fitting[Below(random, static_cast<uint32_t>(fitting.size()))];
    constraint->Push(token);
    text.remove_prefix(Text(token).size());
  }
  const bool complete = IsSet(constraint->Allowed(), stop_);
  EXPECT_EQ(complete, constraint->Complete());
  return complete;
}

bool GrammarFixture::Accepts(std::string_view schema, std::string_view text) const {
  Random random(1);
  return Accepts(Compile(schema), text, random);
}

std::optional<std::string> GrammarFixture::Walk(GrammarConstraint& constraint, Random& random,
                                                uint32_t tokens_max) const {
  std::string text;
  for (uint32_t count = 0; count < tokens_max + 4000; ++count) {
    const std::vector<TokenId> allowed = TokensOf(constraint.Allowed());
    if (allowed.empty()) {
      ADD_FAILURE() << "a dead end after " << text;
      return text;
    }
    const bool may_stop = IsSet(constraint.Allowed(), stop_);
    if (may_stop && (allowed.size() == 1 || count > tokens_max || Below(random, 8) == 0)) {
      return text;
    }
    TokenId token = allowed[Below(random, static_cast<uint32_t>(allowed.size()))];
    if (count > tokens_max) token = Closing(*this, allowed, random);
    if (token == stop_) return text;
    constraint.Push(token);
    text += Text(token);
  }
  return std::nullopt;
}

bool IsSet(std::span<const uint64_t> mask, TokenId token) {
  const uint32_t bit = static_cast<uint32_t>(token);
  return (mask[bit / 64] >> (bit % 64) & 1) != 0;
}

std::vector<TokenId> TokensOf(std::span<const uint64_t> mask) {
  std::vector<TokenId> tokens;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      tokens.push_back(static_cast<TokenId>(word * 64 + std::countr_zero(bits)));
    }
  }
  return tokens;
}

std::string RandomSchema(Random& random) { return RandomNode(random, 3).dump(); }

}  // namespace hearth::grammar
