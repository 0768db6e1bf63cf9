// What one product of gpu_kernels/ops/prompt/expert_gemm.h is given, whichever kernels it runs on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/prompt/expert_gemm.h"

namespace hearth {

// fp16 weights carry 2^-7, so that the largest is finite and the smallest exact; the activation's
// scale takes it back.
inline constexpr float kGemmScaleFactor = 128.0f;

// fp16 row by row, pitch_blocks blocks from one to the next: 32 values as the kernels order them,
// and scale * kGemmScaleFactor.
struct HalfRows {
  std::byte* values = nullptr;
  float* scale = nullptr;
  uint32_t pitch_blocks = 0;
};

struct GemmKernelArgs {
  const ExpertFfnItem* items = nullptr;
  const ExpertFfnEntry* entries = nullptr;
  const ExpertGemmTile* tiles = nullptr;
  HalfRows x;  // of this product: of the pass's rows, or of the entries
  HalfRows h;  // of the entries; gate and up write it
  float* y = nullptr;
  uint32_t y_stride = 0;
  bool gathers = false;     // x has the pass's rows
  uint32_t cols = 0;        // reduction length
  uint32_t outputs = 0;     // of each projection
  uint32_t band_count = 0;  // of each projection of this product
  uint64_t band_bytes = 0;
  uint64_t projection_offset_bytes = 0;  // of gate or down
  uint64_t projection_bytes = 0;         // up follows gate
  uint64_t multiplier_offset_bytes = 0;  // of gate or down
};

// The product on warpgroups (expert_warpgroup.cu), for compute capability 9.0. Enqueue only.
absl::Status LaunchWarpgroupRows(const HalfRows& x, const int8_t* q, const float* scale,
                                 uint32_t rows, uint32_t blocks, CudaStreamView stream);
absl::Status LaunchWarpgroupProducts(const GemmKernelArgs& gate_up, const GemmKernelArgs& down,
                                     const ExpertGemmClasses& classes, CudaStreamView stream);

}  // namespace hearth
