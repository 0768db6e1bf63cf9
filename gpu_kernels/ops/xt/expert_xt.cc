// The sequence of launches of gpu_kernels/ops/xt/expert_xt.h.
#include "gpu_kernels/ops/xt/expert_xt.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/xt/xt_walk.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status EnqueueWalk(uint32_t bits, const ExpertXtPlan& plan, XtWalkArgs args,
                         CudaStreamView stream) {
  args.tables = MakeXtDecodeTables(bits, plan.kind);
  switch (bits) {
    case 2:
      return EnqueueXtWalk2(args, plan.kind, plan.block_count, stream);
    case 3:
      return EnqueueXtWalk3(args, plan.kind, plan.block_count, stream);
    default:
      return EnqueueXtWalk4(args, plan.kind, plan.block_count, stream);
  }
}

void SetShape(const XtShape& shape, XtWalkArgs* args) {
  args->rows = shape.rows;
  args->cols = shape.cols;
  args->band_count = shape.band_count();
  args->block_count = shape.block_count();
  args->pair_count = (shape.block_count() + 1) / 2;
  args->group_count = shape.group_count();
}

void SetProjection(const ExpertLayout& layout, Projection p, int index, XtWalkArgs* args) {
  args->code_offset_bytes[index] = layout.projection_offset_bytes(p);
  args->scale_offset_bytes[index] =
      args->code_offset_bytes[index] + layout.xt_shape(p).scale_offset_bytes();
}

absl::Status EnqueueGateUp(const ExpertXtDesc& desc, const ExpertXtPlan& plan, XtWalkArgs args,
                           CudaStreamView stream) {
  const ExpertLayout& layout = desc.layout;
  SetShape(layout.xt_shape(Projection::kGate), &args);
  args.sum_stride = 2 * layout.width;
  args.sum_projection_stride = layout.width;
  SetProjection(layout, Projection::kGate, 0, &args);
  if (layout.xt_bits.gate == layout.xt_bits.up) {
    SetProjection(layout, Projection::kUp, 1, &args);
    args.projection_count = 2;
    return EnqueueWalk(layout.xt_bits.gate, plan, args, stream);
  }
  args.projection_count = 1;
  HEARTH_RETURN_IF_ERROR(EnqueueWalk(layout.xt_bits.gate, plan, args, stream));
  SetProjection(layout, Projection::kUp, 0, &args);
  args.sums += layout.width;
  return EnqueueWalk(layout.xt_bits.up, plan, args, stream);
}

absl::Status EnqueueHidden(const ExpertXtDesc& desc, const ExpertXtPlan& plan,
                           const ExpertXtArgs& args, CudaStreamView stream) {
  const ExpertLayout& layout = desc.layout;
  XtHiddenArgs hidden = {.item_count = args.item_count,
                         .item_count_max = desc.item_count_max,
                         .items = args.items,
                         .entries = args.entries,
                         .rows_max = desc.rows_max,
                         .width = layout.width,
                         .rotation_block = RotationBlock(layout.width),
                         .rotation_factor = RotationFactor(RotationBlock(layout.width)),
                         .sums = reinterpret_cast<int32_t*>(args.workspace),
                         .x_scale = args.scale,
                         .x_sum = args.sum};
  const Projection projections[2] = {Projection::kGate, Projection::kUp};
  for (int i = 0; i < 2; ++i) {
    const Projection p = projections[i];
    hidden.scale_offset_bytes[i] =
        layout.projection_offset_bytes(p) + layout.xt_shape(p).scale_offset_bytes();
    hidden.multiplier_offset_bytes[i] = layout.scale_offset_bytes(p);
  }
  hidden.q = reinterpret_cast<int8_t*>(args.workspace + plan.h_q_offset_bytes);
  hidden.scale = reinterpret_cast<float*>(args.workspace + plan.h_scale_offset_bytes);
  hidden.sum = reinterpret_cast<int32_t*>(args.workspace + plan.h_sum_offset_bytes);
  return EnqueueXtHidden(hidden, stream);
}

absl::Status EnqueueDown(const ExpertXtDesc& desc, const ExpertXtPlan& plan,
                         const ExpertXtArgs& args, XtWalkArgs walk, CudaStreamView stream) {
  const ExpertLayout& layout = desc.layout;
  const XtShape shape = layout.xt_shape(Projection::kDown);
  SetShape(shape, &walk);
  walk.projection_count = 1;
  SetProjection(layout, Projection::kDown, 0, &walk);
  walk.q = reinterpret_cast<const int8_t*>(args.workspace + plan.h_q_offset_bytes);
  walk.sums = reinterpret_cast<int32_t*>(args.workspace + plan.down_sum_offset_bytes);
  walk.sum_stride = layout.hidden;
  walk.rows_are_entries = true;
  HEARTH_RETURN_IF_ERROR(EnqueueWalk(shape.bits, plan, walk, stream));
  return EnqueueXtOutput(
      {.item_count = args.item_count,
       .item_count_max = desc.item_count_max,
       .items = args.items,
       .entries = args.entries,
       .rows_max = desc.rows_max,
       .hidden = layout.hidden,
       .sums = walk.sums,
       .h_scale = reinterpret_cast<const float*>(args.workspace + plan.h_scale_offset_bytes),
       .h_sum = reinterpret_cast<const int32_t*>(args.workspace + plan.h_sum_offset_bytes),
       .scale_offset_bytes = walk.scale_offset_bytes[0],
       .multiplier_offset_bytes = layout.scale_offset_bytes(Projection::kDown),
       .y = args.y,
       .y_stride = args.y_stride},
      stream);
}

}  // namespace

absl::Status ResetExpertXtWorkspace(const ExpertXtPlan& plan, const DeviceBuffer& workspace,
                                    uint64_t offset_bytes, CudaStreamView stream) {
  if (offset_bytes > workspace.bytes() || plan.workspace_bytes > workspace.bytes() - offset_bytes) {
    return absl::OutOfRangeError("the workspace of XT experts does not lie in its buffer");
  }
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  return CudaStatus(
      cudaMemsetAsync(workspace.data() + offset_bytes, 0, plan.workspace_bytes, stream.get()),
      "reset of the workspace of XT experts");
}

absl::Status LaunchExpertXt(const ExpertXtDesc& desc, const ExpertXtPlan& plan,
                            const ExpertXtArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const XtWalkArgs walk = {.item_count = args.item_count,
                           .item_count_max = desc.item_count_max,
                           .items = args.items,
                           .entries = args.entries,
                           .rows_max = desc.rows_max,
                           .q = args.q,
                           .sums = reinterpret_cast<int32_t*>(args.workspace)};
  HEARTH_RETURN_IF_ERROR(EnqueueGateUp(desc, plan, walk, stream));
  HEARTH_RETURN_IF_ERROR(EnqueueHidden(desc, plan, args, stream));
  return EnqueueDown(desc, plan, args, walk, stream);
}

}  // namespace hearth
