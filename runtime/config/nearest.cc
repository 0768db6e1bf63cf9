// Edit distance with swaps of neighbours, three rows at a time.
#include "runtime/config/nearest.h"

#include <algorithm>
#include <vector>

namespace hearth {
namespace {

constexpr size_t kNameBytesMax = 128;  // longer texts are no name of ours; bounds the work

}  // namespace

uint32_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<uint32_t> before(b.size() + 1);  // row i - 2
  std::vector<uint32_t> above(b.size() + 1);   // row i - 1
  std::vector<uint32_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<uint32_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = static_cast<uint32_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const uint32_t substitution = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && a[i - 1] != b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view NearestName(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() > kNameBytesMax) return {};
  std::string_view nearest;
  uint32_t smallest = UINT32_MAX;
  for (const std::string& candidate : candidates) {
    const uint32_t distance = EditDistance(name, candidate);
    const size_t longer = std::max(name.size(), candidate.size());
    if (distance > std::max<size_t>(2, longer / 3) || distance >= longer) continue;
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace hearth
