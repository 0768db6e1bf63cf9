// The leaves of text: JSON strings, names of members, the raw text of a tool's parameter, strings
// with a pattern or a format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/model/grammar/dfa.h"
#include "runtime/model/grammar/nfa.h"

namespace hearth::grammar {

// A parameter's value that is text ends with this; it holds neither carriage returns, which readers
// take for a part of a line's end, nor kRawForbidden.
inline constexpr std::string_view kRawEnd = "\n</parameter>";
inline constexpr std::string_view kRawForbidden[] = {"</parameter>", "<parameter=", "</function>",
                                                     "</tool_call>", "<tool_call>"};

// Leaves that do not depend on a schema, made once for all grammars.
struct CommonLeaves {
  std::shared_ptr<const Dfa> json_string;  // with its quotes; counts characters
  std::shared_ptr<const Dfa> raw_text;     // with kRawEnd
  std::shared_ptr<const Dfa> raw_line;     // likewise, no line breaks; counts characters
  std::shared_ptr<const Dfa> integer;
  std::shared_ptr<const Dfa> number;

  static std::shared_ptr<const CommonLeaves> Make();
  std::vector<const Dfa*> Sorted() const;
};

// The text with its quotes and the shortest escapes. `text` is valid UTF-8.
std::string JsonQuoted(std::string_view text);

// A name of a member, with its quotes and without escapes, that is none of `names`.
absl::StatusOr<Dfa> OtherNameDfa(std::span<const std::string> names);

// Exactly one of `texts`, each followed by `end`.
absl::StatusOr<std::optional<Dfa>> OneOfDfa(std::span<const std::string> texts,
                                            std::string_view end);

struct StringRules {
  std::vector<std::string> patterns;  // regular expressions, all of which must be found
  uint32_t length_min = 0;            // characters
  uint32_t length_max = UINT32_MAX;
};

// A string of all `rules`, of which at least one pattern: in quotes (kJson), or followed by
// kRawEnd. nullopt: there is none.
absl::StatusOr<std::optional<Dfa>> PatternDfa(const StringRules& rules, TextEncoding encoding);

// The pattern of a format. nullopt: not a format that is supported.
std::optional<std::string> FormatPattern(std::string_view format);
std::string SupportedFormats();  // "date, date-time, ..."

}  // namespace hearth::grammar
