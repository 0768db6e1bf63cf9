// The form of gpu_kernels/ops/expert_ffn.h for the short lists of a window, in one launch: one
// block of threads on each multiprocessor with an equal share of all bytes, first of gate and up,
// then of down. Each warp streams its own part of that through a small ring in shared memory and
// multiplies by integer tensor cores, up to four rows of x at once. A block that needs the h of an
// expert waits until all blocks that compute it have counted it done; all blocks are resident. What
// this header says is how experts are cut and shared memory is laid out: what the plan counts and
// the kernel indexes.
//
// A pair is two neighbouring segments of the canonical reduction of one band, whose codes lie one
// after the other, and so their scales: up to 40 sub-blocks of 16 rows. It is what one warp
// multiplies at a time.
// A grain is 32 values of h, which are quantised together: two bands of gate and the same two of
// up.
//
// Shared memory of a block of threads:
//   ring    [warp][kPairSlots][kPairBytes]: codes [40][2][16][4], scales [40][16] of a pair,
//           multipliers of the item
//   x       [warp]: what a warp takes into registers; q of a row of a pair [40][16] at a time,
//           scales of all [20][8],
//           their rows of y
//   sums    [grain_slots][gate 0, gate 1, up 0, up 1][segment][row of x][16] fp32: of a grain
//   control (expert_ffn_stream_walk.cuh: FfnControl)
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "cpu_kernels/ops/expert.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/expert_ffn_staging.h"

namespace hearth {

inline constexpr uint32_t kSubBlockCodeBytes = kNvfp4BlockValues * kBandRows / 2;
inline constexpr uint32_t kSubBlockScaleBytes = kBandRows;
inline constexpr uint32_t kPairSubBlocks = 2 * kSegmentSubBlocks;
inline constexpr uint32_t kPairCodeBytes = kPairSubBlocks * kSubBlockCodeBytes;
inline constexpr uint32_t kPairScaleBytes = kPairSubBlocks * kSubBlockScaleBytes;
inline constexpr uint32_t kMultiplierBytes = 16;  // of gate, up and down, and zeros
inline constexpr uint32_t kPairBytes = kPairCodeBytes + kPairScaleBytes + kMultiplierBytes;
inline constexpr uint32_t kPairSlots = 2;  // one multiplied, one on its way

inline constexpr uint32_t kFfnPairsMax = 64;  // of a band

inline constexpr uint32_t kGrainBands = 4;
inline constexpr uint32_t kGrainSlotsMax = 2;  // 1 or 2: one summed, one finished

inline constexpr uint32_t kFfnWarpsMax = 16;  // that multiply; one more plans their rounds
inline constexpr uint32_t kFfnJobSlots = 4;   // rounds of a warp that are planned ahead
inline constexpr uint32_t kFfnControlBytes = 6144;

// Longer lists, and more rows of an expert, are as fast or faster in the other form.
inline constexpr uint32_t kStreamItemsMax = 48;
inline constexpr uint32_t kStreamRowsMax = 4;
// At the start of the workspace: entries of h that are done, for each item; blocks of threads that
// have read what they need of those. All zero between launches.
inline constexpr uint32_t kFfnCounterBytes = 256;
static_assert((kStreamItemsMax + 1) * 4 <= kFfnCounterBytes);

constexpr uint32_t FfnSegments(uint32_t cols) {
  return (cols + kSegmentValues - 1) / kSegmentValues;
}
constexpr uint32_t FfnPairs(uint32_t cols) { return (FfnSegments(cols) + 1) / 2; }

inline constexpr uint32_t kWarpRingBytes = kPairSlots * kPairBytes;
inline constexpr uint32_t kFfnXStageLineBytes = kPairSubBlocks * kNvfp4BlockValues;
inline constexpr uint32_t kFfnXStageScaleBytes = kPairSubBlocks / 2 * kExpertRowsMax * 4;
inline constexpr uint32_t kFfnXStageBytes =
    kFfnXStageLineBytes + kFfnXStageScaleBytes + kExpertRowsMax * 4;
inline constexpr uint32_t kFfnWarpBytes = kWarpRingBytes + kFfnXStageBytes;
constexpr uint32_t FfnGrainSumBytes(uint32_t segments, uint32_t rows) {
  return kGrainBands * segments * rows * kBandRows * 4;
}

// Of a plan that says so. Enqueues on `stream` and returns.
absl::Status LaunchExpertFfnStream(const ExpertFfnDesc& desc, const ExpertFfnPlan& plan,
                                   const ExpertFfnArgs& args, CudaStreamView stream);

}  // namespace hearth
