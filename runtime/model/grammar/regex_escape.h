// The characters of a pattern: where its reading stands, its escapes and its classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/model/grammar/nfa.h"

namespace hearth::grammar {

// InvalidArgument: broken UTF-8.
absl::StatusOr<std::u32string> CodePointsOf(std::string_view text);

struct PatternCursor {
  std::u32string text;
  size_t at = 0;

  bool AtEnd() const { return at == text.size(); }
  char32_t Peek() const { return text[at]; }
  char32_t Next() { return text[at++]; }
  bool Take(char32_t c);
  // {n}, {n,} or {n,m}; nothing is taken where it is not one of these.
  std::optional<std::pair<uint32_t, uint32_t>> TakeCounts();
  std::optional<uint32_t> TakeNumber();
  std::optional<uint32_t> TakeHex(size_t digits);

  absl::Status Wrong(std::string_view what) const;    // InvalidArgument, with the place
  absl::Status Refused(std::string_view what) const;  // Unimplemented, with the place
};

// What follows a backslash.
absl::StatusOr<std::vector<CodePointRange>> ParseEscape(PatternCursor& cursor, bool in_class);
// What follows a '[', with its ']'. Normalised.
absl::StatusOr<std::vector<CodePointRange>> ParseClass(PatternCursor& cursor);

}  // namespace hearth::grammar
