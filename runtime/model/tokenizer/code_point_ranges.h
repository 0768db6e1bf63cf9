// Sets of code points as sorted tables of inclusive ranges.
#pragma once

#include <algorithm>
#include <span>

namespace hearth {

struct CodePointRange {
  char32_t first;
  char32_t last;  // inclusive
};

// `ranges` is sorted and its ranges do not overlap.
constexpr bool Contains(std::span<const CodePointRange> ranges, char32_t code_point) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

constexpr bool IsSorted(std::span<const CodePointRange> ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].first > ranges[i].last) return false;
    if (i > 0 && ranges[i - 1].last >= ranges[i].first) return false;
  }
  return true;
}

}  // namespace hearth
