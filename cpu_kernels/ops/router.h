// Top-k choice. The larger value wins; ties go to the lower index.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

// Writes the indices of the `k` largest of values[0, count), k <= count, best first. False, and
// nothing usable written, when a value is NaN.
struct TopKArgs {
  const float* values = nullptr;
  uint32_t count = 0;
  uint32_t k = 0;
  uint32_t* index = nullptr;    // (k)
  uint64_t* scratch = nullptr;  // (count)
};

}  // namespace hearth
