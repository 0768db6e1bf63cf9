// What the test and the benchmark of gpu_kernels/ops/prompt/expert_gemm.h share: a case of
// expert_ffn_case.h with many rows, on a GPU.
#pragma once

#include <utility>
#include <vector>

#include "gpu_kernels/ops/prompt/expert_gemm.h"
#include "tests/gpu_kernels/expert_ffn_case.h"

namespace hearth {

class ExpertGemmOnGpu {
 public:
  static absl::StatusOr<ExpertGemmOnGpu> Create(const ExpertFfnCase& c, const UniqueStream& stream,
                                                ExpertGemmKind kind, uint32_t columns_max) {
    HEARTH_ASSIGN_OR_RETURN(ExpertsOnGpu experts, ExpertsOnGpu::Create(c, stream));
    ExpertGemmTiles cut;
    CutExpertGemm(experts.host_items, columns_max, cut);
    const ExpertGemmDesc desc{.kind = kind,
                              .layout = c.layout,
                              .row_count = static_cast<uint32_t>(c.x.View().rows),
                              .entry_count = static_cast<uint32_t>(c.entries.size())};
    HEARTH_ASSIGN_OR_RETURN(const ExpertGemmPlan plan, PlanExpertGemm(desc));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer tiles, DeviceCopy(cut.tiles, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer q, DeviceCopy(c.x.q, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer scale, DeviceCopy(c.x.scale, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer y, DeviceCopy(ExpertFfnAnswer(c).y, stream));
    HEARTH_ASSIGN_OR_RETURN(GuardedWorkspace workspace,
                            GuardedWorkspace::Create(plan.workspace_bytes, stream));
    return ExpertGemmOnGpu(desc, plan, std::move(cut), c.y_stride,
                           {std::move(experts), std::move(tiles), std::move(q), std::move(scale),
                            std::move(y), std::move(workspace)});
  }

  absl::Status Launch(const UniqueStream& stream) const {
    HEARTH_RETURN_IF_ERROR(
        LaunchExpertGemmRows(desc_, plan_,
                             {.q = reinterpret_cast<const int8_t*>(b_.q.data()),
                              .scale = reinterpret_cast<const float*>(b_.scale.data()),
                              .workspace = b_.workspace.data()},
                             stream.view()));
    const ExpertGemmArgs args = {.items = b_.experts.item_data(),
                                 .entries = b_.experts.entry_data(),
                                 .tiles = reinterpret_cast<const ExpertGemmTile*>(b_.tiles.data()),
                                 .y = reinterpret_cast<float*>(b_.y.data()) + kGuardFloats,
                                 .y_stride = y_stride_,
                                 .workspace = b_.workspace.data()};
    return LaunchExpertGemm(desc_, plan_, cut_.class_begin, args, stream.view());
  }

  // y of every row, between its guards; waits for `stream`. Internal when bytes behind the
  // workspace were written.
  absl::Status Read(const UniqueStream& stream, std::vector<float>* y) const {
    HEARTH_RETURN_IF_ERROR(
        CopyToHost(b_.y, 0, std::as_writable_bytes(std::span(*y)), stream.view()));
    return b_.workspace.CheckGuard(stream);
  }

 private:
  struct Buffers {
    ExpertsOnGpu experts;
    DeviceBuffer tiles, q, scale, y;
    GuardedWorkspace workspace;
  };
  ExpertGemmOnGpu(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan, ExpertGemmTiles cut,
                  uint32_t y_stride, Buffers buffers)
      : desc_(desc),
        plan_(plan),
        cut_(std::move(cut)),
        y_stride_(y_stride),
        b_(std::move(buffers)) {}

  ExpertGemmDesc desc_;
  ExpertGemmPlan plan_;
  ExpertGemmTiles cut_;
  uint32_t y_stride_;
  Buffers b_;
};

}  // namespace hearth
