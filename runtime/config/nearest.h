// The known name that a mistyped one most likely meant.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
uint32_t EditDistance(std::string_view a, std::string_view b);

// The candidate at the smallest distance, the first of equals; empty when none is close enough to
// be a slip (more than a third of the longer text differs, and more than two characters).
std::string_view NearestName(std::string_view name, std::span<const std::string> candidates);

}  // namespace hearth
