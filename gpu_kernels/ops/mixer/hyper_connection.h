// The gated residual streams h (rows, streams * hidden) on a GPU (runtime/backend/cpu/
// hyper_connection.cc): a step writes what a block has computed into the streams and, in the same
// launch, normalises and quantises them for the block that reads next; the mix makes that block's
// input. One block of threads for each (row, stream): the bits of a row depend on nothing else.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/mixer/combine.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"

namespace hearth {

inline constexpr uint32_t kStreamGroupMax = 16384;  // values that one norm covers

enum class StreamWrite : uint8_t {
  kNone,       // h stays
  kBroadcast,  // h[s][j] = y[j]: the embedding of a token
  kAdd,        // h[s][j] = fma(inject[s], y[j], h[s][j]); without inject: h[s][j] + y[j]
  kCombine     // as kAdd; y[j] is the combination of experts (combine.h)
};

// First the write, if any. Then, if `norm` is there, hn = RmsNorm(h) with one group per stream,
// weight 1 + norm (as RmsNormArgs), and its quantised form of streams * hidden columns.
// With streams = 1 this is the norm of plain rows: hidden = the group.
struct GpuStreamStepArgs {
  StreamWrite write = StreamWrite::kNone;
  float* h = nullptr;             // (rows, streams * hidden)
  const float* y = nullptr;       // (rows, hidden), kBroadcast and kAdd
  GpuCombineSource combine;       // kCombine
  const float* inject = nullptr;  // (rows, streams)
  const float* norm = nullptr;    // (streams * hidden); null: no read follows
  float epsilon = 0;
  float* hn = nullptr;  // (rows, streams * hidden); may equal h when the write is kNone
  QuantizedOut hn_quantized;
  uint32_t rows = 0;
  uint32_t streams = 0;
  uint32_t hidden = 0;  // a multiple of 32, at most kStreamGroupMax
};

// u[j] = (sum over s in order of fma(sigmoid(gate[s][j]), hn[s][j])) * (1 / streams), as
// StreamMixArgs, and its quantised form.
struct GpuStreamMixArgs {
  const float* gate = nullptr;  // (rows, streams * hidden), before the sigmoid
  const float* hn = nullptr;    // (rows, streams * hidden)
  float* u = nullptr;           // (rows, hidden)
  QuantizedOut u_quantized;
  uint32_t rows = 0;
  uint32_t streams = 0;
  uint32_t hidden = 0;  // a multiple of 32
};

// Each enqueues and returns. All pointers are device addresses, 16-byte aligned. InvalidArgument: a
// shape that they do not take.
absl::Status LaunchStreamStep(const GpuStreamStepArgs& args, CudaStreamView stream);
absl::Status LaunchStreamMix(const GpuStreamMixArgs& args, CudaStreamView stream);

}  // namespace hearth
