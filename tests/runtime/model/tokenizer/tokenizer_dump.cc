// The tokenizer as a filter, for comparison with other implementations: reads one hex-coded byte
// string a line, writes one JSON line with its ids and the hex of the decoded text.
//   tokenizer_dump TOKENIZER_JSON [text] < hex lines      "text": added tokens are ordinary text
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/tokenizer_json.h"

namespace hearth {
namespace {

int NibbleOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool FromHex(std::string_view hex, std::string& bytes) {
  bytes.clear();
  if (hex.size() % 2 != 0) return false;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = NibbleOf(hex[i]);
    const int low = NibbleOf(hex[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

std::string ToHex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

int Run(const std::string& path, SpecialTokens special) {
  const absl::StatusOr<std::string> json = ReadFile(path, kTokenizerJsonBytesMax);
  const absl::StatusOr<Tokenizer> tokenizer =
      json.ok() ? Tokenizer::FromJson(*json, path) : json.status();
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  std::string line;
  std::string text;
  while (std::getline(std::cin, line)) {
    if (!FromHex(line, text)) {
      std::fprintf(stderr, "not hex: %s\n", line.c_str());
      return 1;
    }
    const std::vector<TokenId> ids = tokenizer->Encode(text, special);
    std::string out = "{\"ids\":[";
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) out += ',';
      out += std::to_string(ids[i]);
    }
    out += "],\"text\":\"" + ToHex(tokenizer->Decode(ids, SkipSpecial::kNo)) + "\",\"plain\":\"" +
           ToHex(tokenizer->Decode(ids, SkipSpecial::kYes)) + "\"}";
    std::puts(out.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  const bool as_text = argc == 3 && std::string_view(argv[2]) == "text";
  if (argc < 2 || argc > 3 || (argc == 3 && !as_text)) {
    std::fprintf(stderr, "usage: %s TOKENIZER_JSON [text] < hex lines\n", argv[0]);
    return 2;
  }
  return hearth::Run(argv[1],
                     as_text ? hearth::SpecialTokens::kAsText : hearth::SpecialTokens::kParse);
}
