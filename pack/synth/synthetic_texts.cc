#include "pack/synth/synthetic_texts.h"

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr std::array<const char*, kControlTokenCount> kControlTokens = {
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"};
constexpr uint32_t kSpecialCount = 3;  // of them; thinking tokens are part of the answer

// The rest of the file around the vocabulary: what the model's own tokenizer has.
constexpr std::string_view kBeforeVocab = R"(],
"normalizer": {"type": "NFC"},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
{"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L})"
                                          R"(\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*)"
                                          R"(|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
"behavior": "Isolated", "invert": false},
{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
"post_processor": null,
"decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, )"
                                          R"("use_regex": false},
"model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
"end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
"vocab": {)";

// JSON text of the character that stands for one byte in byte-level BPE: printable Latin-1 stands
// for itself, the other 68 bytes for U+0100 onwards in order.
std::string ByteCharacter(uint32_t byte) {
  const auto printable = [](uint32_t b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  uint32_t code = byte;
  if (!printable(byte)) {
    code = 256;
    for (uint32_t b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code == '"' || code == '\\') return {'\\', static_cast<char>(code)};
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

// " ba", " be", ... " baba", ...: the index in base 85, a syllable for each digit, after the
// character that stands for a space.
std::string MadeUpWord(uint32_t index) {
  constexpr std::string_view kConsonants = "bcdfghjklmnprstvz";
  constexpr std::string_view kVowels = "aeiou";
  constexpr uint32_t kSyllables = 17 * 5;
  std::string word;
  do {
    const uint32_t syllable = index % kSyllables;
    word = std::string{kConsonants[syllable / 5], kVowels[syllable % 5]} + word;
    index /= kSyllables;
  } while (index > 0);
  return "\xC4\xA0" + word;
}

}  // namespace

std::string SyntheticTokenizerJson(const ModelGeometry& geometry) {
  const auto first_control = static_cast<uint32_t>(geometry.ngram.eos_token);
  HEARTH_CHECK(geometry.vocab_count >= kVocabCountMin &&
               first_control + kControlTokenCount <= geometry.vocab_count);
  std::string text = R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)";
  for (uint32_t i = 0; i < kControlTokenCount; ++i) {
    absl::StrAppend(&text, i == 0 ? "\n" : ",\n", "{\"id\": ", first_control + i,
                    ", \"content\": \"", kControlTokens[i],
                    "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": false, \"special\": ",
                    i < kSpecialCount ? "true}" : "false}");
  }
  text += kBeforeVocab;
  uint32_t index = 0;
  for (uint32_t id = 0; id < geometry.vocab_count; ++id) {
    if (id >= first_control && id < first_control + kControlTokenCount) continue;
    absl::StrAppend(&text, index == 0 ? "\n\"" : ",\n\"",
                    index < 256 ? ByteCharacter(index) : MadeUpWord(index - 256), "\": ", id);
    ++index;
  }
  text += "},\n\"merges\": []}}\n";
  return text;
}

std::vector<std::pair<std::string, std::string>> SyntheticTexts(const ModelGeometry& geometry) {
  std::string config =
      absl::StrCat("{\"tokenizer_class\": \"Qwen2Tokenizer\", \"model_max_length\": ",
                   geometry.context_tokens_max,
                   ", \"eos_token\": \"<|im_end|>\", \"pad_token\": \"<|endoftext|>\", "
                   "\"add_bos_token\": false, \"clean_up_tokenization_spaces\": false}\n");
  std::string generation =
      absl::StrCat("{\"do_sample\": true, \"temperature\": 1.0, ", "\"eos_token_id\": [",
                   geometry.ngram.eos_token + 2, ", ", geometry.ngram.eos_token, "]}\n");
  std::string chat =
      "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + "
      "(message.content | trim) + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}"
      "{{- '<|im_start|>assistant\\n' }}{%- endif %}";
  return {{"tokenizer.json", SyntheticTokenizerJson(geometry)},
          {"tokenizer_config.json", std::move(config)},
          {"chat_template.jinja", std::move(chat)},
          {"generation_config.json", std::move(generation)}};
}

}  // namespace hearth
