// The end of a MoE block, as CombineArgs of cpu_kernels/ops/elementwise.h: acc = 0; acc =
// fma(weight[r], y[r], acc) for ranks r in order; out = fma(shared_gate, shared, acc).
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/exchange/output_wait.h"

namespace hearth {

inline constexpr uint32_t kCombineRanksMax = 32;

// Outputs of routed experts lie in one of two buffers of the same shape; a byte per (row, rank)
// says in which. Only the named one is read.
struct GpuCombineSource {
  const float* device_y = nullptr;  // (rows * ranks, hidden), row stride y_stride, 16-byte aligned
  const float* host_y = nullptr;  // the same in mapped host memory; null: everything is in device_y
  const uint8_t* on_card = nullptr;    // (rows * ranks), 0: in host_y; null: all in device_y
  uint32_t y_stride = 0;               // elements, a multiple of 4
  const float* weight = nullptr;       // (rows, ranks)
  const float* shared = nullptr;       // (rows, hidden); null: no shared expert
  const float* shared_gate = nullptr;  // (rows), already through its sigmoid
  uint32_t ranks = 0;                  // 1 to kCombineRanksMax
  OutputWait wait;  // what comes before host_y and on_card; of steps (hyper_connection.h) only
};

struct GpuCombineArgs {
  GpuCombineSource from;
  float* out = nullptr;  // (rows, hidden)
  uint32_t rows = 0;
  uint32_t hidden = 0;  // a multiple of 32
};

// Enqueues and returns. InvalidArgument: a shape that it does not take. Fused with what follows:
// GpuStreamStepArgs (hyper_connection.h).
absl::Status LaunchCombine(const GpuCombineArgs& args, CudaStreamView stream);

}  // namespace hearth
