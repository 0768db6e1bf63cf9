// The second half of a hyper-connection's read in one launch, for windows: gates from the low-rank
// values and the mix of the residual streams. The bits are those of quantising the low-rank values
// (activate_quantize.h), a product (dense_matmul.h) and the mix (hyper_connection.h) one after the
// other.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"

namespace hearth {

inline constexpr uint32_t kGatedMixRankMax = 512;
inline constexpr uint32_t kGatedMixStreamsMax = 8;

// gate = up low, with low quantised; then u as GpuStreamMixArgs.
struct GpuGatedMixArgs {
  DeviceMatrix up;             // (streams * hidden, rank)
  const float* low = nullptr;  // (rows, rank)
  const float* hn = nullptr;   // (rows, streams * hidden); see below
  float* u = nullptr;          // (rows, hidden)
  QuantizedOut u_quantized;
  uint32_t rows = 0;  // 1 to kMatmulRowsMax
  uint32_t streams = 0;
  uint32_t hidden = 0;
};

// Whether LaunchGatedMix takes the matrix: Q8, of a rank up to kGatedMixRankMax and at most
// kGatedMixStreamsMax streams of a multiple of 32.
bool TakesGatedMix(const DeviceMatrix& up, uint32_t streams);

// Enqueues and returns. All pointers are device addresses, 16-byte aligned. The launch directly
// before this one in the stream must not write `hn`, which is read while that one still runs.
// InvalidArgument: a shape that it does not take.
absl::Status LaunchGatedMix(const GpuGatedMixArgs& args, CudaStreamView stream);

}  // namespace hearth
