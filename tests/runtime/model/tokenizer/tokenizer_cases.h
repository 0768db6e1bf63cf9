// What the tokenizer tests share: Flashlet's tokenizer.json, variants of it, and the golden cases.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/tokenizer.h"

namespace hearth {

// profiles/flashlet/tokenizer.json after `change`.
std::string ChangedFlashlet(const std::function<void(nlohmann::json&)>& change);

// Flashlet's file as it is.
Tokenizer FlashletTokenizer();

// A variant that tests/oracle/tokenizer_texts.py makes under the same name, and how it is asked.
struct Variant {
  std::string name;
  SpecialTokens special;
  Tokenizer tokenizer;
};
std::vector<Variant> AllVariants();

struct GoldenAnswer {
  std::vector<std::string> variants;
  std::vector<TokenId> ids;  // empty where only count and hash are given
  uint64_t id_count;
  std::string fnv1a;
};

struct GoldenCase {
  std::string name;
  std::string text;
  std::vector<GoldenAnswer> answers;
};
// tests/golden/tokenizer/<file>
std::vector<GoldenCase> ReadGoldenCases(const std::string& file);

std::string Fnv1aHex(const std::vector<TokenId>& ids);

}  // namespace hearth
