#include "runtime/backend/cuda/matmul_launch.h"

#include <algorithm>

#include "cpu_kernels/ops/activation.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

DenseMatmulArgs ArgsOf(const MatmulRows& x, std::initializer_list<MatmulOutput> outputs,
                       uint32_t first, uint32_t rows) {
  const QuantizedOut q = SliceQuantized(x.quantized, x.cols, first);
  DenseMatmulArgs args;
  args.x = {.x = x.x + uint64_t{first} * x.cols,
            .x_stride = x.cols,
            .q = q.q,
            .scale = q.scale,
            .sum16 = q.sum16};
  args.rows = rows;
  args.cols = x.cols;
  for (const MatmulOutput& output : outputs) {
    if (output.w.rows == 0) continue;
    HEARTH_CHECK(args.output_count < kMatmulOutputsMax && output.w.cols == x.cols);
    MatmulOutput& to = args.outputs[args.output_count++];
    to = output;
    to.y += uint64_t{first} * output.y_stride;
  }
  return args;
}

}  // namespace

QuantizedOut SliceQuantized(const QuantizedOut& q, uint32_t cols, uint64_t first) {
  if (q.q == nullptr) return {};
  const uint64_t blocks = ActivationBlocks(cols);
  return {.q = q.q + first * blocks * kActivationBlockValues,
          .scale = q.scale + first * blocks,
          .sum16 = q.sum16 + first * blocks * 2};
}

absl::Status EnqueueMatmul(const MatmulRows& x, std::initializer_list<MatmulOutput> outputs,
                           bool window, CudaStreamView stream) {
  if (!window) return LaunchDenseGemm(ArgsOf(x, outputs, 0, x.rows), x.room, stream);
  for (uint32_t first = 0; first < x.rows; first += kMatmulRowsMax) {
    const uint32_t rows = std::min(x.rows - first, kMatmulRowsMax);
    HEARTH_RETURN_IF_ERROR(LaunchDenseMatmul(ArgsOf(x, outputs, first, rows), stream));
  }
  return absl::OkStatus();
}

}  // namespace hearth
