// Where the rows of x lie in shared memory: what the plan counts and the kernels index.
//   q     [row][segment][21][16] int8: 20 sub-blocks of 16 values and 16 bytes that put the
//   segments
//         of a warp on different banks
//   block [row][cols / 16]: BlockFactors
// Later the segments' sums lie in the same place: [unit][row][16] fp32, unit = (band, projection,
// segment).
#pragma once

#include <cstdint>

#include "cpu_kernels/ops/expert.h"

namespace hearth {

inline constexpr uint32_t kSegmentSubBlocks = kSegmentValues / kNvfp4BlockValues;
inline constexpr uint32_t kStagedSegmentLines = kSegmentSubBlocks + 1;  // of 16 bytes
inline constexpr uint32_t kLanesPerUnit = 4;
inline constexpr uint32_t kFfnThreadsMax = 512;

struct BlockFactors {  // of 16 activations
  int32_t dot_start;   // kIntegerFloatBits - kNvfp4Offset * their sum
  float scale;
};
static_assert(sizeof(BlockFactors) == 8);

constexpr uint32_t StagedQBytes(uint32_t rows, uint32_t segments) {
  return rows * segments * kStagedSegmentLines * 16;
}
constexpr uint32_t StagedBytes(uint32_t rows, uint32_t segments, uint32_t cols) {
  return StagedQBytes(rows, segments) + rows * (cols / kNvfp4BlockValues) * 8;
}
constexpr uint32_t SegmentSumBytes(uint32_t rows, uint32_t units) {
  return units * rows * kBandRows * 4;
}

}  // namespace hearth
