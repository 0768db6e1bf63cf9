// Attention of a pass: shares of positions side by side for a window, whole rows for a prompt.
#include <cmath>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_attend.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::StatusOr<bool> HasSharedBytes(uint32_t bytes) {
  int device = 0;
  int most = 0;
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "current GPU"));
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                 "shared memory of a block"));
  return static_cast<uint32_t>(most) >= bytes;
}

}  // namespace

absl::Status LaunchQsaAttend(const QsaDesc& desc, const QsaPlan& plan, const QsaAttendArgs& args,
                             CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const AttentionGeometry& g = desc.attention;
  const bool window = args.pass.rows <= kQsaWindowRows;
  HEARTH_ASSIGN_OR_RETURN(const bool dense_fits, HasSharedBytes(QsaDenseSharedBytes(g.head_dim)));
  const QsaAttendKernelArgs kernel_args = {
      .pass = args.pass,
      .qg = args.qg,
      .chosen = reinterpret_cast<const uint32_t*>(args.workspace + plan.chosen_offset_bytes),
      .partial = reinterpret_cast<float*>(args.workspace + plan.partial_offset_bytes),
      .softmax = reinterpret_cast<float2*>(args.workspace + plan.softmax_offset_bytes),
      .out = args.out,
      .q = args.q,
      .scale = args.scale,
      .sum16 = args.sum16,
      .softmax_scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim)),
      .kv_format = desc.kv_format,
      .layer = args.layer,
      .head_count = g.head_count,
      .kv_head_count = g.kv_head_count,
      .head_dim = g.head_dim,
      .block_tokens = g.block_tokens,
      .block_count_max = g.block_count_max,
      .share_count = window ? plan.split_count : 1,
      .tiles_per_share = window ? 1 : plan.split_count,
      .dense_apart = !window && dense_fits};
  if (kernel_args.dense_apart) {
    HEARTH_RETURN_IF_ERROR(EnqueueQsaDense(kernel_args, stream));
    // Without a choice no row is left.
    if (plan.score_rows == 0) return EnqueueQsaMerge(kernel_args, stream);
  }
  HEARTH_RETURN_IF_ERROR(EnqueueQsaShares(kernel_args, stream));
  return EnqueueQsaMerge(kernel_args, stream);
}

}  // namespace hearth
