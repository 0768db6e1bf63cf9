// Unicode normalisation form C, as the reference implementation of tokenizer.json applies it.
#pragma once

#include <string>
#include <string_view>

namespace hearth {

// `text` is valid UTF-8. The data is utf8proc's (Unicode 15.0), except that combining marks encoded
// after Unicode 9.0 count as plain letters: the reference normaliser (the Rust package
// `tokenizers`) has the tables of Unicode 9.0, and so has every text a model was trained on through
// it.
std::string NormalizeNfc(std::string_view text);

// True if the character neither changes, nor combines with what stands before it, nor is moved, in
// the cheap opinion of a small table: false says nothing.
bool IsPlainForNfc(char32_t code_point);

}  // namespace hearth
