// The C++ twin of tests/oracle/tokenizer_texts.py's variants().
#include "tests/runtime/model/tokenizer/tokenizer_cases.h"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/model/tokenizer/tokenizer_json.h"

namespace hearth {
namespace {

using nlohmann::json;

constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string ReadOrStop(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kTokenizerJsonBytesMax);
  if (!text.ok()) std::fprintf(stderr, "%s\n", text.status().ToString().c_str());
  HEARTH_CHECK(text.ok());
  return *std::move(text);
}

std::string FlashletJson() {
  return ReadOrStop(HEARTH_SOURCE_DIR "/profiles/flashlet/tokenizer.json");
}

json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

void MakeQwen(json& file) {
  file["normalizer"] = {{"type", "NFC"}};
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = kQwenPattern;
  file["post_processor"] = ByteLevel(false);
  file["model"]["continuing_subword_prefix"] = "";
  file["model"]["end_of_word_suffix"] = "";
  for (json& merge : file["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
}

void MakeOverlapping(json& file) {
  MakeQwen(file);
  const char* const contents[] = {"<a",     "<ab>",   "ab>c",       "x\u00e9", "e\u0301",
                                  " <sp> ", "\n\n\n", "\U0001f600", "<|i",     "m_start"};
  int index = 0;
  for (const char* content : contents) {
    file["added_tokens"].push_back({{"id", 8192 + index},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", index % 2 == 0}});
    ++index;
  }
}

Tokenizer TokenizerOf(const std::function<void(json&)>& change) {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(ChangedFlashlet(change), "variant");
  if (!tokenizer.ok()) std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
  HEARTH_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string TextOfCase(const json& golden) {
  if (golden.contains("text")) return golden["text"].get<std::string>();
  std::string text;
  if (golden.contains("hex")) {
    const std::string hex = golden["hex"].get<std::string>();
    for (size_t i = 0; i < hex.size(); i += 2) {
      text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    return text;
  }
  const std::string unit = golden["repeat"][0].get<std::string>();
  for (int i = 0; i < golden["repeat"][1].get<int>(); ++i) text += unit;
  return text;
}

}  // namespace

std::string ChangedFlashlet(const std::function<void(json&)>& change) {
  json file = json::parse(FlashletJson());
  change(file);
  return file.dump();
}

Tokenizer FlashletTokenizer() {
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(FlashletJson(), "flashlet");
  HEARTH_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

std::vector<Variant> AllVariants() {
  const auto ignore_merges = [](json& file) { file["model"]["ignore_merges"] = true; };
  const auto whole = [](json& file) { file["pre_tokenizer"] = ByteLevel(false); };
  std::vector<Variant> variants;
  const auto add = [&](const char* name, SpecialTokens special, auto change) {
    variants.push_back({name, special, TokenizerOf(change)});
  };
  constexpr SpecialTokens kParse = SpecialTokens::kParse;
  add("flashlet", kParse, [](json&) {});
  add("qwen", kParse, MakeQwen);
  add("sequence_nfc", kParse, [](json& file) {
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  });
  add("ignore_merges", kParse, ignore_merges);
  add("gpt2", kParse, [](json& file) { file["pre_tokenizer"] = ByteLevel(true); });
  add("whole", kParse, whole);
  add("whole_ignore_merges", kParse, [&](json& file) {
    whole(file);
    ignore_merges(file);
  });
  add("overlapping", kParse, MakeOverlapping);
  add("unreachable_word", kParse, [&](json& file) {
    ignore_merges(file);
    json& merges = file["model"]["merges"];
    merges.erase(merges.begin() + 4000, merges.end());
  });
  add("as_text", SpecialTokens::kAsText, [](json&) {});
  add("qwen_as_text", SpecialTokens::kAsText, MakeQwen);
  return variants;
}

std::vector<GoldenCase> ReadGoldenCases(const std::string& file) {
  const json golden =
      json::parse(ReadOrStop(std::string(HEARTH_SOURCE_DIR "/tests/golden/tokenizer/") + file));
  std::vector<GoldenCase> cases;
  for (const json& one : golden["cases"]) {
    GoldenCase& made = cases.emplace_back();
    made.name = one["name"].get<std::string>();
    made.text = TextOfCase(one);
    for (const json& answer : one["answers"]) {
      GoldenAnswer& to = made.answers.emplace_back();
      to.variants = answer["variants"].get<std::vector<std::string>>();
      if (answer.contains("ids")) to.ids = answer["ids"].get<std::vector<TokenId>>();
      to.id_count = answer.contains("count") ? answer["count"].get<uint64_t>() : to.ids.size();
      to.fnv1a = answer.contains("fnv1a") ? answer["fnv1a"].get<std::string>() : Fnv1aHex(to.ids);
    }
  }
  return cases;
}

std::string Fnv1aHex(const std::vector<TokenId>& ids) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3ull;
    }
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace hearth
