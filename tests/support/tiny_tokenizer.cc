// The tokenizer of the generated checkpoint: byte-level BPE without merges, token id = byte value,
// then the special tokens.
#include <nlohmann/json.hpp>

#include "tests/support/tiny_checkpoint.h"

namespace hearth {
namespace {

// UTF-8 of the character that stands for one byte in byte-level BPE: printable Latin-1 stands for
// itself, the other 68 bytes for U+0100 onwards in order.
std::string ByteCharacter(uint32_t byte) {
  const auto printable = [](uint32_t b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  uint32_t code = byte;
  if (!printable(byte)) {
    code = 256;
    for (uint32_t b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

std::string TinyTokenizerJson() {
  using Json = nlohmann::ordered_json;
  Json vocab = Json::object();
  for (uint32_t byte = 0; byte < 256; ++byte) vocab[ByteCharacter(byte)] = byte;
  Json added = Json::array();
  const char* specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"};
  for (int i = 0; i < 5; ++i) {
    const bool special = i < 3;
    added.push_back({{"id", 256 + i},
                     {"content", specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  const Json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
         "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  Json pre_tokenizer = {{"type", "Sequence"}};
  pre_tokenizer["pretokenizers"] = Json::array({split, bytes});
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false}};
  model["vocab"] = vocab;
  model["merges"] = Json::array();
  Json tokenizer = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  tokenizer["added_tokens"] = added;
  tokenizer["normalizer"] = {{"type", "NFC"}};
  tokenizer["pre_tokenizer"] = pre_tokenizer;
  tokenizer["post_processor"] = nullptr;
  tokenizer["decoder"] = bytes;
  tokenizer["model"] = model;
  return tokenizer.dump(1);
}

}  // namespace hearth
