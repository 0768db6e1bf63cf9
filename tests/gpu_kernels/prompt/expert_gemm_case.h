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
  static constexpr uint64_t kGuardBytes = 256;
  static constexpr std::byte kGuardByte{0xA5};

  static absl::StatusOr<ExpertGemmOnGpu> Create(const ExpertFfnCase& c, const GpuInfo& gpu,
                                                const UniqueStream& stream, uint32_t columns_max) {
    const uint64_t stride = c.layout.stride_bytes();
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer blobs,
                            DeviceBuffer::Create(gpu.id, stride * c.blobs.size()));
    std::vector<ExpertFfnItem> items;
    for (size_t i = 0; i < c.blobs.size(); ++i) {
      HEARTH_RETURN_IF_ERROR(CopyToDevice({c.blobs[i].data(), c.layout.blob_bytes()}, blobs,
                                          i * stride, stream.view()));
      items.push_back(
          {blobs.data() + i * stride, c.item_begin[i], c.item_begin[i + 1] - c.item_begin[i]});
    }
    ExpertGemmTiles cut;
    CutExpertGemm(items, columns_max, cut);
    const ExpertGemmDesc desc{.layout = c.layout, .column_count = cut.column_count};
    HEARTH_ASSIGN_OR_RETURN(const ExpertGemmPlan plan, PlanExpertGemm(desc));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer items_buffer, OnDevice<ExpertFfnItem>(items, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer entries, OnDevice<ExpertFfnEntry>(c.entries, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer tiles, OnDevice<ExpertGemmTile>(cut.tiles, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer q, OnDevice<int8_t>(c.x.q, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer scale, OnDevice<float>(c.x.scale, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer y, OnDevice<float>(ExpertFfnAnswer(c).y, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer workspace,
                            DeviceBuffer::Create(gpu.id, plan.workspace_bytes + kGuardBytes));
    HEARTH_RETURN_IF_ERROR(FillBytes(workspace, kGuardByte, stream.view()));
    return ExpertGemmOnGpu(
        desc, plan, std::move(cut), c.y_stride,
        {std::move(blobs), std::move(items_buffer), std::move(entries), std::move(tiles),
         std::move(q), std::move(scale), std::move(y), std::move(workspace)});
  }

  absl::Status Launch(const UniqueStream& stream) const {
    const ExpertGemmArgs args = {
        .items = reinterpret_cast<const ExpertFfnItem*>(b_.items.data()),
        .entries = reinterpret_cast<const ExpertFfnEntry*>(b_.entries.data()),
        .tiles = reinterpret_cast<const ExpertGemmTile*>(b_.tiles.data()),
        .q = reinterpret_cast<const int8_t*>(b_.q.data()),
        .scale = reinterpret_cast<const float*>(b_.scale.data()),
        .y = reinterpret_cast<float*>(b_.y.data()) + kGuardFloats,
        .y_stride = y_stride_,
        .workspace = b_.workspace.data()};
    return LaunchExpertGemm(desc_, plan_, cut_, args, stream.view());
  }

  // y of every row, between its guards; waits for `stream`. Internal when bytes behind the
  // workspace were written.
  absl::Status Read(const UniqueStream& stream, std::vector<float>* y) const {
    HEARTH_RETURN_IF_ERROR(
        CopyToHost(b_.y, 0, std::as_writable_bytes(std::span(*y)), stream.view()));
    std::vector<std::byte> guard(kGuardBytes);
    HEARTH_RETURN_IF_ERROR(CopyToHost(b_.workspace, plan_.workspace_bytes, guard, stream.view()));
    HEARTH_RETURN_IF_ERROR(stream.Synchronize());
    if (std::any_of(guard.begin(), guard.end(), [](std::byte b) { return b != kGuardByte; })) {
      return absl::InternalError("a write behind the workspace");
    }
    return absl::OkStatus();
  }

 private:
  struct Buffers {
    DeviceBuffer blobs, items, entries, tiles, q, scale, y, workspace;
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
