// The host arithmetic of gpu_kernels/ops/prompt/expert_gemm.h.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/ops/prompt/expert_gemm.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kPartAlignBytes = 256;

// What a stage holds: columns with their scales, bands with theirs; and three stages, and the
// totals of 256 rows and the class's columns (expert_gemm.cu).
constexpr uint32_t kStageCount = 3;
constexpr uint32_t kStageBlocks = 2;
constexpr uint32_t kStageValues = kStageBlocks * kActivationBlockValues;
constexpr uint32_t kRowCount = 256;
constexpr uint32_t kStageRowBytes = kStageValues / 2 + kStageValues / kNvfp4BlockValues;

uint32_t ClassOf(uint32_t columns) {
  uint32_t c = 0;
  while (kGemmClassColumns[c] < columns) ++c;
  return c;
}

// Calls visit(tile) for every tile of `items`.
template <class Visit>
void ForEachTile(std::span<const ExpertFfnItem> items, uint32_t columns_max, Visit&& visit) {
  for (uint32_t i = 0; i < items.size(); ++i) {
    const uint32_t count = items[i].entry_count;
    const uint32_t parts = (count + columns_max - 1) / columns_max;
    for (uint32_t p = 0; p < parts; ++p) {
      const uint32_t begin = count * p / parts;
      const uint32_t end = count * (p + 1) / parts;
      visit(ExpertGemmTile{
          .item = i, .entry_begin = items[i].entry_begin + begin, .columns = end - begin});
    }
  }
}

}  // namespace

uint32_t ExpertGemmSharedBytes(uint32_t gemm_class) {
  const uint32_t columns = kGemmClassColumns[gemm_class];
  const uint32_t column_bytes =
      kStageValues * 2 + kStageValues / kActivationBlockValues * uint32_t{sizeof(float)};
  return kStageCount * (columns * column_bytes + kRowCount * kStageRowBytes) +
         kRowCount * columns * uint32_t{sizeof(float)};
}

ExpertGemmKind ExpertGemmKindFor(const GpuLimits& gpu) {
#ifdef HEARTH_PROMPT_WARPGROUPS
  if (gpu.sm == 90) return ExpertGemmKind::kWarpgroup;
#endif
  (void)gpu;
  return ExpertGemmKind::kWarp;
}

uint32_t ExpertGemmColumnsMax(ExpertGemmKind kind, const GpuLimits& gpu) {
  if (kind == ExpertGemmKind::kWarpgroup) return kGemmClassColumns[kGemmClassCount - 1];
  // Beside it the kernels keep row numbers of each column.
  constexpr uint32_t kOtherBytesPerColumn = 2 * sizeof(uint32_t);
  uint32_t columns = 0;
  for (uint32_t c = 0; c < kGemmClassCount && kGemmClassColumns[c] <= kGemmWarpColumnsMax; ++c) {
    const uint32_t other_bytes = kGemmClassColumns[c] * kOtherBytesPerColumn;
    if (ExpertGemmSharedBytes(c) + other_bytes > gpu.shared_bytes_per_block_max) break;
    columns = kGemmClassColumns[c];
  }
  return columns;
}

void CutExpertGemm(std::span<const ExpertFfnItem> items, uint32_t columns_max,
                   ExpertGemmTiles& tiles) {
  uint32_t counts[kGemmClassCount] = {};
  ForEachTile(items, columns_max,
              [&](const ExpertGemmTile& tile) { ++counts[ClassOf(tile.columns)]; });
  uint32_t next[kGemmClassCount];
  tiles.class_begin[0] = 0;
  for (uint32_t c = 0; c < kGemmClassCount; ++c) {
    next[c] = tiles.class_begin[c];
    tiles.class_begin[c + 1] = tiles.class_begin[c] + counts[c];
  }
  tiles.tiles.resize(tiles.class_begin[kGemmClassCount]);
  ForEachTile(items, columns_max, [&](const ExpertGemmTile& tile) {
    tiles.tiles[next[ClassOf(tile.columns)]++] = tile;
  });
}

uint64_t ExpertGemmTileBound(uint64_t item_count, uint64_t entry_count, uint32_t columns_max) {
  return item_count + entry_count / columns_max;
}

uint32_t ExpertGemmPitchBlocks(uint32_t cols) {
  return static_cast<uint32_t>(AlignUp(ActivationBlocks(cols), kStageBlocks));
}

absl::StatusOr<ExpertGemmPlan> PlanExpertGemm(const ExpertGemmDesc& desc) {
  if (desc.layout.format != ExpertFormat::kNvfp4) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts in ", ExpertFormatName(desc.layout.format),
                     ": the prompt product on tensor cores takes nvfp4"));
  }
  if (desc.row_count == 0 || desc.entry_count == 0) {
    return absl::InvalidArgumentError("a prompt product of no rows");
  }
  const auto half_bytes = [](uint64_t rows, uint32_t cols) {
    return AlignUp(rows * ExpertGemmPitchBlocks(cols) * kActivationBlockValues * 2,
                   kPartAlignBytes);
  };
  const auto scale_bytes = [](uint64_t rows, uint32_t cols) {
    return AlignUp(rows * ExpertGemmPitchBlocks(cols) * sizeof(float), kPartAlignBytes);
  };
  const uint32_t hidden = desc.layout.hidden;
  const uint32_t width = desc.layout.width;
  ExpertGemmPlan plan;
  plan.x_scale_offset_bytes = half_bytes(desc.row_count, hidden);
  plan.h_offset_bytes = plan.x_scale_offset_bytes + scale_bytes(desc.row_count, hidden);
  plan.h_scale_offset_bytes = plan.h_offset_bytes + half_bytes(desc.entry_count, width);
  plan.workspace_bytes = plan.h_scale_offset_bytes + scale_bytes(desc.entry_count, width);
  return plan;
}

}  // namespace hearth
