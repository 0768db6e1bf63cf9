// The host arithmetic of gpu_kernels/ops/xt/expert_xt.h.
#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/xt/expert_xt.h"
#include "gpu_kernels/ops/xt/xt_decode_tables.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint32_t kWorkspaceAlignBytes = 256;
constexpr uint32_t kWidthMax = 8192;  // a row of h in 32 KiB of shared memory
constexpr uint64_t kStepsMax = 1u << 31;

absl::Status CheckDesc(const ExpertXtDesc& desc) {
  const ExpertLayout& layout = desc.layout;
  if (layout.format != ExpertFormat::kXt) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts in ", ExpertFormatName(layout.format), ": this kernel takes xt"));
  }
  HEARTH_RETURN_IF_ERROR(
      ExpertLayout::Create(layout.format, layout.hidden, layout.width, layout.xt_bits).status());
  if (layout.width > kWidthMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("expert width ", layout.width, ": the GPU kernel takes at most ", kWidthMax));
  }
  if (desc.rows_max == 0 || desc.rows_max > kExpertRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows_max ", desc.rows_max, ": expected 1 to ", kExpertRowsMax));
  }
  if (desc.item_count_max == 0 || desc.item_count_max > kExpertItemsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("item_count_max ", desc.item_count_max, ": expected 1 to ", kExpertItemsMax));
  }
  if (desc.entry_count_max == 0 ||
      desc.entry_count_max > uint64_t{desc.item_count_max} * desc.rows_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "entry_count_max ", desc.entry_count_max, ": expected 1 to ",
        uint64_t{desc.item_count_max} * desc.rows_max, ", at most ", desc.rows_max, " per item"));
  }
  // A step is 16 rows x 64 columns of one projection.
  const uint64_t bands = BandCount(layout.width) + BandCount(layout.hidden);
  const uint64_t pairs = (layout.hidden + layout.width) / kXtBlockCols + 2;
  if (desc.item_count_max * bands * pairs >= kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(desc.item_count_max, " experts of ", layout.hidden, " x ", layout.width,
                     ": more weights than one call takes; split the list"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExpertXtPlan> PlanExpertXt(const ExpertXtDesc& desc, const GpuLimits& gpu) {
  HEARTH_RETURN_IF_ERROR(CheckDesc(desc));
  const ExpertLayout& layout = desc.layout;
  ExpertXtPlan plan;
  plan.block_count = gpu.multiprocessor_count;
  plan.kind = gpu.shared_bytes_per_block_max >= XtSharedBytes(XtDecodeKind::kHalfLevels)
                  ? XtDecodeKind::kHalfLevels
                  : XtDecodeKind::kSplit;
  plan.shared_bytes = XtSharedBytes(plan.kind);
  if (plan.shared_bytes > gpu.shared_bytes_per_block_max) {
    return absl::InvalidArgumentError(absl::StrCat("XT experts need ", plan.shared_bytes,
                                                   " bytes of shared memory, the GPU has ",
                                                   gpu.shared_bytes_per_block_max));
  }
  const uint64_t entries = desc.entry_count_max;
  uint64_t at = 0;
  const auto take = [&](uint64_t bytes) {
    const uint64_t offset = at;
    at += AlignUp(bytes, kWorkspaceAlignBytes);
    return offset;
  };
  take(entries * 2 * layout.width * sizeof(int32_t));
  plan.down_sum_offset_bytes = take(entries * layout.hidden * sizeof(int32_t));
  plan.h_q_offset_bytes = take(entries * layout.width);
  plan.h_scale_offset_bytes = take(entries * sizeof(float));
  plan.h_sum_offset_bytes = take(entries * sizeof(int32_t));
  plan.workspace_bytes = at;
  return plan;
}

}  // namespace hearth
