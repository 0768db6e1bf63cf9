// The patterns of JSON schema: the part of ECMAScript's regular expressions that an automaton can
// follow. Supported: characters, `.`, classes with ranges and negation, \d \w \s and their
// opposites, \n \t \r \f \v \0 \xHH \uHHHH \u{...} \cX, groups (capturing or not; names are
// ignored), alternatives, `* + ? {n} {n,} {n,m}` (lazy ones too: the language is the same), `^` and
// `$` at the ends of an alternative of the whole pattern. Refused by name: look-around, back
// references, word boundaries, \p classes, anchors elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/units.h"
#include "runtime/model/grammar/nfa.h"

namespace hearth::grammar {

inline constexpr uint64_t kPatternBytesMax = 16_KiB;
inline constexpr uint32_t kPatternNestingMax = 64;
inline constexpr uint32_t kPatternRepeatMax = 4096;

class Regex {
 public:
  // InvalidArgument: not a pattern, with the place; Unimplemented: a feature that is refused;
  // ResourceExhausted: longer, deeper or with more repetitions than the limits.
  static absl::StatusOr<Regex> Parse(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // A way from `from` for each text in which the pattern is found (anywhere, where no anchor says
  // otherwise). Returns its end.
  Nfa::State AddTo(Nfa& nfa, Nfa::State from, TextEncoding encoding) const;

  struct Part;  // of a parsed pattern

 private:
  explicit Regex(std::unique_ptr<Part> root);
  std::unique_ptr<Part> root_;  // with what stands around the match
};

}  // namespace hearth::grammar
