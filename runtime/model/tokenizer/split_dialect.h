// Translates the split patterns of tokenizer.json, written for Oniguruma, into PCRE2 patterns that
// match the same text.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hearth {

// Accepts the part of the dialect that means the same in both engines after translation: literals,
// | ( ) (?: ) (?= ) (?! ), (?i: ) around plain ASCII alternatives, classes of literals, ranges and
// escapes, \r \n \t \f \v \s \S \p{L} \p{M} \p{N}, and the quantifiers ? * + {n} {n,} {n,m}, greedy
// or lazy. Everything else is Unimplemented, naming the construct and its byte offset. Spelt out,
// because PCRE2 10.42 has Unicode 14.0 and the reference has 16.0: the letters, marks and numbers
// added in between, and the white space (PCRE2's \s has U+180E, Unicode's has not).
absl::StatusOr<std::string> TranslateSplitPattern(std::string_view pattern);

}  // namespace hearth
