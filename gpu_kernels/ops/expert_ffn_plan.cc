// The host arithmetic of gpu_kernels/ops/expert_ffn.h.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/expert_ffn_staging.h"
#include "gpu_kernels/ops/expert_ffn_stream.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kThreadsWanted =
    128;  // several blocks on a multiprocessor hide each other's ends
constexpr uint32_t kWorkspaceAlignBytes = 256;

struct CutShape {
  uint32_t rows_class;
  uint32_t cols;  // reduction length
  uint32_t band_count;
  uint32_t projections;  // that one block computes: gate and up, or down
  uint32_t bands_multiple;
};

absl::StatusOr<ExpertFfnCut> CutOf(const CutShape& shape, const GpuLimits& gpu) {
  ExpertFfnCut cut;
  cut.segments = (shape.cols + kSegmentValues - 1) / kSegmentValues;
  const uint64_t threads_per_step =
      uint64_t{cut.segments} * shape.projections * shape.bands_multiple * kLanesPerUnit;
  if (threads_per_step > kFfnThreadsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expert of reduction length ", shape.cols, ": the GPU kernel takes at most ",
        uint64_t{kFfnThreadsMax} / (threads_per_step / cut.segments) * kSegmentValues));
  }
  const auto step = static_cast<uint32_t>(threads_per_step);
  const uint32_t steps = std::max(1u, kThreadsWanted / step);
  cut.bands_per_block = shape.bands_multiple * steps;
  cut.blocks_per_item = (shape.band_count + cut.bands_per_block - 1) / cut.bands_per_block;
  cut.threads = static_cast<uint32_t>(AlignUp(step * steps, kWarpThreads));
  const uint32_t units = cut.bands_per_block * shape.projections * cut.segments;
  cut.shared_bytes = std::max(StagedBytes(shape.rows_class, cut.segments, shape.cols),
                              SegmentSumBytes(shape.rows_class, units));
  if (cut.shared_bytes > gpu.shared_bytes_per_block_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expert of reduction length ", shape.cols, " at ", shape.rows_class, " rows: needs ",
        cut.shared_bytes, " bytes of shared memory, the GPU has ", gpu.shared_bytes_per_block_max));
  }
  return cut;
}

// What is measured to be faster, and only experts of whole pairs of segments.
ExpertFfnStreamPlan StreamPlanOf(const ExpertFfnDesc& desc, const GpuLimits& gpu) {
  constexpr uint32_t kPairValues = kPairSubBlocks * kNvfp4BlockValues;
  const ExpertLayout& layout = desc.layout;
  if (!desc.allows_one_launch || desc.item_count > kStreamItemsMax ||
      desc.rows_max > kStreamRowsMax)
    return {};
  if (layout.hidden % kPairValues != 0 || layout.width % kPairValues != 0) return {};
  ExpertFfnStreamPlan plan = {.blocks = std::max(1u, gpu.multiprocessor_count),
                              .warps = kFfnWarpsMax};
  const uint32_t sum_bytes = FfnGrainSumBytes(FfnSegments(layout.hidden), desc.rows_max);
  for (plan.grain_slots = kGrainSlotsMax; plan.grain_slots > 0; --plan.grain_slots) {
    plan.shared_bytes =
        plan.warps * kFfnWarpBytes + plan.grain_slots * sum_bytes + kFfnControlBytes;
    if (plan.shared_bytes <= gpu.shared_bytes_per_block_max) return plan;
  }
  return {};
}

absl::Status CheckDesc(const ExpertFfnDesc& desc) {
  if (desc.layout.format != ExpertFormat::kNvfp4) {
    return absl::InvalidArgumentError(absl::StrCat(
        "experts in ", ExpertFormatName(desc.layout.format), ": the GPU kernel takes nvfp4"));
  }
  HEARTH_RETURN_IF_ERROR(
      ExpertLayout::Create(desc.layout.format, desc.layout.hidden, desc.layout.width).status());
  if (desc.rows_max == 0 || desc.rows_max > kExpertRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows_max ", desc.rows_max, ": expected 1 to ", kExpertRowsMax));
  }
  if (desc.item_count == 0 || desc.item_count > kExpertItemsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("item_count ", desc.item_count, ": expected 1 to ", kExpertItemsMax));
  }
  if (desc.entry_count < desc.item_count ||
      desc.entry_count > uint64_t{desc.item_count} * desc.rows_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry_count ", desc.entry_count, ": expected ", desc.item_count, " to ",
                     desc.item_count * desc.rows_max, ", 1 to ", desc.rows_max, " for each item"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExpertFfnPlan> PlanExpertFfn(const ExpertFfnDesc& desc, const GpuLimits& gpu) {
  HEARTH_RETURN_IF_ERROR(CheckDesc(desc));
  const ExpertLayout& layout = desc.layout;
  ExpertFfnPlan plan;
  plan.rows_class = std::bit_ceil(desc.rows_max);
  HEARTH_ASSIGN_OR_RETURN(plan.gate_up, CutOf({.rows_class = plan.rows_class,
                                               .cols = layout.hidden,
                                               .band_count = BandCount(layout.width),
                                               .projections = 2,
                                               .bands_multiple = 2},
                                              gpu));
  HEARTH_ASSIGN_OR_RETURN(plan.down, CutOf({.rows_class = plan.rows_class,
                                            .cols = layout.width,
                                            .band_count = BandCount(layout.hidden),
                                            .projections = 1,
                                            .bands_multiple = 1},
                                           gpu));
  const uint64_t blocks = uint64_t{desc.entry_count} * ActivationBlocks(layout.width);
  plan.stream = StreamPlanOf(desc, gpu);
  plan.h_offset_bytes = kFfnCounterBytes;
  plan.h_scale_offset_bytes =
      plan.h_offset_bytes + AlignUp(blocks * kActivationBlockValues, kWorkspaceAlignBytes);
  plan.h_sum_offset_bytes =
      plan.h_scale_offset_bytes + AlignUp(blocks * sizeof(float), kWorkspaceAlignBytes);
  plan.workspace_bytes = plan.h_sum_offset_bytes + blocks * 2 * sizeof(int32_t);
  return plan;
}

}  // namespace hearth
