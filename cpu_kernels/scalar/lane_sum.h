// The sum that every reduction over a row uses: sixteen accumulators, lane j over k = j, 16+j,
// 32+j, ... in order; then lanes j and j+8 are added, then j and j+4, j+2, j+1.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hearth::scalar {

inline constexpr uint32_t kLanes = 16;

inline float AddLanes(std::array<float, kLanes> lane) {
  for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
    for (uint32_t j = 0; j < half; ++j) lane[j] = lane[j] + lane[j + half];
  }
  return lane[0];
}

inline float DotOf(const float* a, const float* b, uint32_t count) {
  std::array<float, kLanes> lane{};
  for (uint32_t k = 0; k < count; ++k) lane[k % kLanes] = std::fma(a[k], b[k], lane[k % kLanes]);
  return AddLanes(lane);
}

}  // namespace hearth::scalar
