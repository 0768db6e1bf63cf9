// Q8 weights times many quantised rows of x as fp16 products with fp32 sums, on warpgroups of
// compute capability 9.0: three times as fast as the int8 products, which have a scale to apply to
// every 32 columns. Weights and rows are rounded to fp16 once their scales are in them, 2e-4 of the
// norm in all. Weights are up to 65504 in magnitude; rows may be of any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"

namespace hearth {

inline constexpr uint32_t kHalfTileRows = 128;  // of x
inline constexpr uint32_t kHalfStepCols = 64;
inline constexpr uint32_t kHalfLineBytes = kHalfStepCols * 2;

// The rows of x in device memory: for each tile of rows and each step of columns, kHalfTileRows
// lines, as the products read them; behind them a factor for each row.
struct HalfRowsLayout {
  uint64_t factors_offset_bytes = 0;
  uint64_t bytes = 0;
};
HalfRowsLayout LayOutHalfRows(uint32_t rows, uint32_t cols);

// Whether the card is of exactly that compute capability.
absl::StatusOr<bool> HasWarpgroups(GpuId gpu);

// `room`: 1024-byte aligned device memory, LayOutHalfRows().bytes. All outputs are Q8. Checked by
// the caller.
absl::Status LaunchGemmHalf(std::span<const MatmulOutput> outputs, const DeviceRows& x,
                            uint32_t rows, uint32_t cols, std::byte* room, CudaStreamView stream);

}  // namespace hearth
