// Scores and choice, in turns of as many rows as the workspace holds scores for.
#include <algorithm>
#include <cmath>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_select.cuh"
#include "runtime/base/status.h"

namespace hearth {

absl::Status LaunchQsaSelect(const QsaDesc& desc, const QsaPlan& plan, const QsaSelectArgs& args,
                             CudaStreamView stream) {
  if (plan.score_rows == 0) return absl::OkStatus();  // no context is that long
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const AttentionGeometry& g = desc.attention;
  QsaSelectKernelArgs kernel_args = {
      .pass = args.pass,
      .index = args.index,
      .scores = reinterpret_cast<float*>(args.workspace),
      .chosen = reinterpret_cast<uint32_t*>(args.workspace + plan.chosen_offset_bytes),
      .scale = 1.0f / std::sqrt(static_cast<float>(g.indexer_head_dim)),
      .layer = args.layer,
      .row_begin = 0,
      .row_end = 0,
      .score_stride = plan.score_stride,
      .indexer_head_count = g.indexer_head_count,
      .indexer_head_dim = g.indexer_head_dim,
      .block_tokens = g.block_tokens,
      .block_count_max = g.block_count_max};
  for (uint32_t row = 0; row < args.pass.rows; row += plan.score_rows) {
    kernel_args.row_begin = row;
    kernel_args.row_end = std::min(args.pass.rows, row + plan.score_rows);
    HEARTH_RETURN_IF_ERROR(EnqueueQsaScores(kernel_args, stream));
    HEARTH_RETURN_IF_ERROR(EnqueueQsaChoice(kernel_args, stream));
  }
  return absl::OkStatus();
}

}  // namespace hearth
