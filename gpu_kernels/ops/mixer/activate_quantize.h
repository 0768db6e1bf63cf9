// Element-wise functions whose result is quantised in the same launch: the low-rank values of a
// hyper-connection, the hidden values of the shared expert, or plain rows.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"

namespace hearth {

enum class RowFunction : uint8_t {
  kNone,   // y = x
  kSilu,   // y = silu(x * scale), as SiluArgs
  kSwiglu  // y = silu(x) * up, as SwigluArgs
};

struct GpuActivateQuantizeArgs {
  RowFunction function = RowFunction::kNone;
  const float* x = nullptr;   // (rows, cols), row stride x_stride
  const float* up = nullptr;  // (rows, cols), the same stride; kSwiglu
  uint32_t x_stride = 0;      // elements, a multiple of 4
  float scale = 1;            // kSilu
  float* y = nullptr;  // (rows, cols) dense; null: not wanted; may equal x when x_stride is cols
  QuantizedOut quantized;
  uint32_t rows = 0;
  uint32_t cols = 0;  // a multiple of 4; a last block of 32 is filled up with zeros
};

// Enqueues and returns. All pointers 16-byte aligned.
absl::Status LaunchActivateQuantize(const GpuActivateQuantizeArgs& args, CudaStreamView stream);

}  // namespace hearth
