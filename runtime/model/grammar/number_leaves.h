// The leaves of numbers. Integers are written without fraction and exponent, with at most 18
// digits; numbers with at most 18 digits before the point and 18 behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/grammar/dfa.h"

namespace hearth::grammar {

inline constexpr uint32_t kDigitsMax = 18;
inline constexpr int64_t kIntegerMax = 999'999'999'999'999'999;
inline constexpr int64_t kMultipleMax = 4096;

// A bound, exactly.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // no zeros in front
  std::string fraction;     // no zeros behind

  bool IsZero() const { return whole == "0" && fraction.empty(); }
  // Of a JSON number's shortest text, with or without exponent. InvalidArgument: no number;
  // Unimplemented: over 18 digits behind the point.
  static absl::StatusOr<Decimal> Parse(std::string_view text);
};

// Negative: a is less than b; zero: equal.
int Compare(const Decimal& a, const Decimal& b);

struct DecimalBound {
  Decimal value;
  bool exclusive = false;
};

struct NumberRules {
  std::optional<DecimalBound> least;
  std::optional<DecimalBound> most;
  std::optional<int64_t> multiple_of;  // integers only; 1 to kMultipleMax
};

Dfa AnyIntegerDfa();
Dfa AnyNumberDfa();  // with exponents of at most two digits

// nullopt: no such number. ResourceExhausted: too many states.
absl::StatusOr<std::optional<Dfa>> IntegerDfa(const NumberRules& rules);
absl::StatusOr<std::optional<Dfa>> NumberDfa(const NumberRules& rules);

}  // namespace hearth::grammar
