// Ranges of numbers as automata over their digits.
#include "runtime/model/grammar/number_leaves.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/grammar/nfa.h"
#include "runtime/model/grammar/regex.h"

namespace hearth::grammar {
namespace {

using State = Nfa::State;

constexpr int64_t kExponentMax = 400;  // of a bound's text

Dfa MustCompile(std::string_view pattern) {
  const absl::StatusOr<Regex> regex = Regex::Parse(pattern);
  HEARTH_CHECK(regex.ok());
  Nfa nfa;
  const State start = nfa.AddState();
  const State accept = regex->AddTo(nfa, start, TextEncoding::kRaw);
  const absl::StatusOr<std::optional<Dfa>> dfa = nfa.ToDfa(start, accept);
  HEARTH_CHECK(dfa.ok() && dfa->has_value());
  return **dfa;
}

// Digits that are the same number of digits as `low` and `high` and lie between them.
void AddBetween(Nfa& nfa, State from, std::string_view low, std::string_view high, State to) {
  if (low.empty()) return nfa.AddEpsilon(from, to);
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  const std::string zeros(low_rest.size(), '0');
  const std::string nines(low_rest.size(), '9');
  const auto through = [&](char first, char last, std::string_view rest_low,
                           std::string_view rest_high) {
    if (first > last) return;
    const State middle = nfa.AddState();
    nfa.AddBytes(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), middle);
    AddBetween(nfa, middle, rest_low, rest_high, to);
  };
  if (low_rest == zeros && high_rest == nines) return through(low[0], high[0], zeros, nines);
  if (low[0] == high[0]) return through(low[0], low[0], low_rest, high_rest);
  through(low[0], low[0], low_rest, nines);
  through(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1), zeros, nines);
  through(high[0], high[0], zeros, high_rest);
}

// Non-negative integers from `low` to `high`.
void AddMagnitudes(Nfa& nfa, State from, uint64_t low, uint64_t high, State to) {
  if (low > high) return;
  uint64_t begin = 0;
  for (uint64_t end = 9;; end = end * 10 + 9) {  // of so many digits
    const uint64_t first = std::max(low, begin);
    const uint64_t last = std::min(high, end);
    if (first <= last) {
      AddBetween(nfa, from, std::to_string(first), std::to_string(last), to);
    }
    if (end >= high) return;
    begin = end + 1;
  }
}

// The least integer that is not below a bound: rounded away from what it excludes.
int64_t LeastInteger(const DecimalBound& bound) {
  const Decimal& value = bound.value;
  int64_t whole = kIntegerMax + 1;
  if (value.whole.size() <= kDigitsMax) HEARTH_CHECK(absl::SimpleAtoi(value.whole, &whole));
  const bool exact = value.fraction.empty();
  if (value.negative) return -whole + (exact && bound.exclusive ? 1 : 0);
  return whole + (!exact || bound.exclusive ? 1 : 0);
}

int64_t GreatestInteger(DecimalBound bound) {
  bound.value.negative = !bound.value.negative && !bound.value.IsZero();
  return -LeastInteger(bound);
}

// Digits of a fraction, of which one is not zero if `not_all_zero`.
void AddDigits(Nfa& nfa, State from, bool not_all_zero, State to) {
  const State rest = not_all_zero ? nfa.AddState() : from;
  if (not_all_zero) {
    nfa.AddBytes(from, '0', '0', from);
    nfa.AddBytes(from, '1', '9', rest);
  }
  nfa.AddBytes(rest, '0', '9', rest);
  nfa.AddEpsilon(rest, to);
}

void AddAnyFraction(Nfa& nfa, State from, State to) {
  nfa.AddEpsilon(from, to);
  const State digits = nfa.AddState();
  nfa.AddBytes(from, '.', '.', digits);
  AddDigits(nfa, digits, /*not_all_zero=*/false, to);
}

// What may stand behind the whole part of `bound` so that the number is not less (more) than it.
void AddFractionFrom(Nfa& nfa, State from, const DecimalBound& bound, State to) {
  const std::string& fraction = bound.value.fraction;
  if (fraction.empty() && !bound.exclusive) return AddAnyFraction(nfa, from, to);
  State at = nfa.AddState();
  nfa.AddBytes(from, '.', '.', at);
  const State any = nfa.AddState();
  AddDigits(nfa, any, /*not_all_zero=*/false, to);
  for (const char digit : fraction) {
    if (digit < '9') nfa.AddBytes(at, static_cast<uint8_t>(digit + 1), '9', any);
    const State next = nfa.AddState();
    nfa.AddBytes(at, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit), next);
    at = next;
  }
  AddDigits(nfa, at, bound.exclusive, to);
}

void AddFractionUpTo(Nfa& nfa, State from, const DecimalBound& bound, State to) {
  const std::string& fraction = bound.value.fraction;
  if (fraction.empty() && bound.exclusive) return;
  nfa.AddEpsilon(from, to);
  State at = nfa.AddState();
  nfa.AddBytes(from, '.', '.', at);
  const State any = nfa.AddState();
  AddDigits(nfa, any, /*not_all_zero=*/false, to);
  bool first = true;
  for (const char digit : fraction) {
    if (!first) nfa.AddEpsilon(at, to);
    first = false;
    if (digit > '0') nfa.AddBytes(at, '0', static_cast<uint8_t>(digit - 1), any);
    const State next = nfa.AddState();
    nfa.AddBytes(at, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit), next);
    at = next;
  }
  if (bound.exclusive) return;
  nfa.AddBytes(at, '0', '0', at);
  nfa.AddEpsilon(at, to);
}

// Non-negative numbers that are not less than (not more than) the magnitude of `bound`.
void AddMagnitudeFrom(Nfa& nfa, State from, const DecimalBound& bound, State to) {
  uint64_t whole = 0;
  if (bound.value.whole.size() > kDigitsMax) return;
  HEARTH_CHECK(absl::SimpleAtoi(bound.value.whole, &whole));
  const State above = nfa.AddState();
  AddMagnitudes(nfa, from, whole + 1, kIntegerMax, above);
  AddAnyFraction(nfa, above, to);
  const State same = nfa.AddState();
  nfa.AddText(from, bound.value.whole, same);
  AddFractionFrom(nfa, same, bound, to);
}

void AddMagnitudeUpTo(Nfa& nfa, State from, const DecimalBound& bound, State to) {
  const State below = nfa.AddState();
  AddAnyFraction(nfa, below, to);
  if (bound.value.whole.size() > kDigitsMax) {
    return AddMagnitudes(nfa, from, 0, kIntegerMax, below);
  }
  uint64_t whole = 0;
  HEARTH_CHECK(absl::SimpleAtoi(bound.value.whole, &whole));
  if (whole > 0) AddMagnitudes(nfa, from, 0, whole - 1, below);
  const State same = nfa.AddState();
  nfa.AddText(from, bound.value.whole, same);
  AddFractionUpTo(nfa, same, bound, to);
}

State AddMinus(Nfa& nfa, State from) {
  const State behind = nfa.AddState();
  nfa.AddBytes(from, '-', '-', behind);
  return behind;
}

void AddNumbersFrom(Nfa& nfa, State from, const DecimalBound& least, State to) {
  if (!least.value.negative) return AddMagnitudeFrom(nfa, from, least, to);
  AddMagnitudeFrom(nfa, from, DecimalBound(), to);
  AddMagnitudeUpTo(nfa, AddMinus(nfa, from), least, to);
}

void AddNumbersUpTo(Nfa& nfa, State from, const DecimalBound& most, State to) {
  const bool below_zero = most.value.negative || (most.value.IsZero() && most.exclusive);
  if (below_zero) return AddMagnitudeFrom(nfa, AddMinus(nfa, from), most, to);
  AddMagnitudeUpTo(nfa, from, most, to);
  AddMagnitudeFrom(nfa, AddMinus(nfa, from), DecimalBound(), to);
}

std::optional<Dfa> MultiplesDfa(int64_t divisor) {
  DfaBuilder builder;
  const uint32_t start = builder.AddState();
  const uint32_t minus = builder.AddState();
  const uint32_t first = builder.state_count();
  for (int64_t r = 0; r < divisor; ++r) builder.AddState(r == 0 ? Dfa::kAccepting : 0);
  builder.SetBytes(start, '-', '-', minus);
  for (uint32_t digit = 0; digit < 10; ++digit) {
    const uint8_t byte = static_cast<uint8_t>('0' + digit);
    const uint32_t of_digit = first + static_cast<uint32_t>(digit % divisor);
    builder.SetBytes(start, byte, byte, of_digit);
    builder.SetBytes(minus, byte, byte, of_digit);
    for (int64_t r = 0; r < divisor; ++r) {
      builder.SetBytes(first + static_cast<uint32_t>(r), byte, byte,
                       first + static_cast<uint32_t>((r * 10 + digit) % divisor));
    }
  }
  return std::move(builder).Finish();
}

}  // namespace

absl::StatusOr<Decimal> Decimal::Parse(std::string_view text) {
  Decimal value;
  value.negative = text.starts_with('-');
  if (value.negative) text.remove_prefix(1);
  std::string digits;
  int64_t point = -1;  // digits in front of it
  int64_t exponent = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] >= '0' && text[i] <= '9') {
      digits.push_back(text[i]);
    } else if (text[i] == '.' && point < 0) {
      point = static_cast<int64_t>(digits.size());
    } else if ((text[i] == 'e' || text[i] == 'E') &&
               absl::SimpleAtoi(ToAbsl(text.substr(i + 1)), &exponent)) {
      break;
    } else {
      return absl::InvalidArgumentError("not a number");
    }
  }
  if (digits.empty() || exponent > kExponentMax || exponent < -kExponentMax) {
    return absl::InvalidArgumentError("not a number, or one far too large or small");
  }
  if (point < 0) point = static_cast<int64_t>(digits.size());
  point += exponent;
  if (point < 0) {
    digits.insert(0, static_cast<size_t>(-point), '0');
    point = 0;
  }
  if (point > static_cast<int64_t>(digits.size())) {
    digits.append(static_cast<size_t>(point) - digits.size(), '0');
  }
  value.whole = digits.substr(0, static_cast<size_t>(point));
  value.fraction = digits.substr(static_cast<size_t>(point));
  value.whole.erase(0, std::min(value.whole.find_first_not_of('0'), value.whole.size()));
  if (value.whole.empty()) value.whole = "0";
  value.fraction.erase(value.fraction.find_last_not_of('0') + 1);
  if (value.fraction.size() > kDigitsMax) {
    return absl::UnimplementedError(
        absl::StrCat("a bound with over ", kDigitsMax, " digits behind the point"));
  }
  if (value.IsZero()) value.negative = false;
  return value;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int magnitude = 0;
  if (a.whole.size() != b.whole.size()) {
    magnitude = a.whole.size() < b.whole.size() ? -1 : 1;
  } else {
    magnitude = a.whole.compare(b.whole);
    if (magnitude == 0) magnitude = a.fraction.compare(b.fraction);
  }
  return a.negative ? -magnitude : magnitude;
}

Dfa AnyIntegerDfa() { return MustCompile("^-?(0|[1-9][0-9]{0,17})$"); }

Dfa AnyNumberDfa() {
  return MustCompile("^-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?$");
}

absl::StatusOr<std::optional<Dfa>> IntegerDfa(const NumberRules& rules) {
  int64_t least = -kIntegerMax;
  int64_t most = kIntegerMax;
  if (rules.least.has_value()) least = std::max(least, LeastInteger(*rules.least));
  if (rules.most.has_value()) most = std::min(most, GreatestInteger(*rules.most));
  if (least > most) return std::nullopt;
  Nfa nfa;
  const State start = nfa.AddState();
  const State accept = nfa.AddState();
  if (most >= 0) {
    AddMagnitudes(nfa, start, static_cast<uint64_t>(std::max<int64_t>(least, 0)),
                  static_cast<uint64_t>(most), accept);
  }
  if (least < 0) {
    AddMagnitudes(nfa, AddMinus(nfa, start), static_cast<uint64_t>(std::max<int64_t>(1, -most)),
                  static_cast<uint64_t>(-least), accept);
  }
  HEARTH_ASSIGN_OR_RETURN(std::optional<Dfa> range, nfa.ToDfa(start, accept));
  if (!range.has_value() || !rules.multiple_of.has_value()) return range;
  const std::optional<Dfa> multiples = MultiplesDfa(*rules.multiple_of);
  HEARTH_CHECK(multiples.has_value());
  return Intersect(*range, *multiples);
}

absl::StatusOr<std::optional<Dfa>> NumberDfa(const NumberRules& rules) {
  std::optional<Dfa> all = MustCompile("^-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?$");
  for (const bool is_least : {true, false}) {
    const std::optional<DecimalBound>& bound = is_least ? rules.least : rules.most;
    if (!bound.has_value() || !all.has_value()) continue;
    Nfa nfa;
    const State start = nfa.AddState();
    const State accept = nfa.AddState();
    if (is_least) {
      AddNumbersFrom(nfa, start, *bound, accept);
    } else {
      AddNumbersUpTo(nfa, start, *bound, accept);
    }
    HEARTH_ASSIGN_OR_RETURN(const std::optional<Dfa> side, nfa.ToDfa(start, accept));
    if (!side.has_value()) return std::nullopt;
    HEARTH_ASSIGN_OR_RETURN(all, Intersect(*all, *side));
  }
  return all;
}

}  // namespace hearth::grammar
