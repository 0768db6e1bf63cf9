// The small text files of a made-up pack: a byte-level tokenizer that covers the whole vocabulary,
// its configuration, a chat template and generation defaults.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pack/format/geometry.h"

namespace hearth {

// tokenizer.json: the five control tokens from ngram.eos_token on ("<|endoftext|>",
// "<|im_start|>", "<|im_end|>", "<think>", "</think>"); then, in order of id, the 256 bytes and
// made-up words that fill the vocabulary. No merges: text is read byte by byte, and what the model
// says reads as words. `geometry.vocab_count` is at least kVocabCountMin.
std::string SyntheticTokenizerJson(const ModelGeometry& geometry);
inline constexpr uint32_t kControlTokenCount = 5;
inline constexpr uint32_t kVocabCountMin = 256 + kControlTokenCount;

// Name and content of each of them, tokenizer.json first.
std::vector<std::pair<std::string, std::string>> SyntheticTexts(const ModelGeometry& geometry);

}  // namespace hearth
