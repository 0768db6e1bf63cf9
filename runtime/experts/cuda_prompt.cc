#include "runtime/experts/cuda_prompt.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kListAlignBytes = 256;
// Rows of an expert, on average, from which warpgroups are the faster; below they have too little
// to do beside the decoding of weights. Of 512 experts on an H200, us: warps 1038 and warpgroups
// 1265 at 20 rows, 1720 and 1634 at 40.
constexpr uint32_t kWarpgroupRowsMin = 32;

uint32_t EntriesMax(const CudaPrompt::Shape& shape) { return shape.rows_max * shape.ranks; }

// Of such kernels, where that matters.
ExpertGemmDesc DescOf(const ExpertLayout& layout, const CudaPrompt::Shape& shape,
                      ExpertGemmKind kind = ExpertGemmKind::kWarp) {
  return {.kind = kind,
          .layout = layout,
          .row_count = shape.rows_max,
          .entry_count = EntriesMax(shape)};
}

}  // namespace

bool CudaPrompt::IsNeeded(std::span<const ExpertLayout> layouts, const GpuLimits& limits,
                          const Shape& shape) {
  return shape.rows_max >= kCudaPromptRowsMin &&
         ExpertGemmColumnsMax(ExpertGemmKind::kWarp, limits) > 0 &&
         std::ranges::any_of(
             layouts, [](const ExpertLayout& l) { return l.format == ExpertFormat::kNvfp4; });
}

// An expert is one item, so that there are no more of them than entries.
CudaPrompt::ListPlaces CudaPrompt::PlaceLists(const Shape& shape, const GpuLimits& limits) {
  const uint64_t entries = EntriesMax(shape);
  const uint32_t columns_max = ExpertGemmColumnsMax(ExpertGemmKind::kWarp, limits);  // the fewest
  ListPlaces places{.tile_count = ExpertGemmTileBound(entries, entries, columns_max)};
  places.entries_offset_bytes = AlignUp(entries * sizeof(ExpertFfnItem), kListAlignBytes);
  places.tiles_offset_bytes =
      places.entries_offset_bytes + AlignUp(entries * sizeof(ExpertFfnEntry), kListAlignBytes);
  places.bytes = places.tiles_offset_bytes + places.tile_count * sizeof(ExpertGemmTile);
  return places;
}

absl::StatusOr<uint64_t> CudaPrompt::WorkspaceBytes(std::span<const ExpertLayout> layouts,
                                                    const Shape& shape) {
  uint64_t bytes = 0;
  for (const ExpertLayout& layout : layouts) {
    if (layout.format != ExpertFormat::kNvfp4) continue;
    HEARTH_ASSIGN_OR_RETURN(const ExpertGemmPlan plan, PlanExpertGemm(DescOf(layout, shape)));
    bytes = std::max(bytes, plan.workspace_bytes);
  }
  return bytes;
}

absl::StatusOr<uint64_t> CudaPrompt::BufferBytes(std::span<const ExpertLayout> layouts,
                                                 const GpuLimits& limits, const Shape& shape) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t workspace, WorkspaceBytes(layouts, shape));
  return workspace + PlaceLists(shape, limits).bytes;
}

CudaPrompt::CudaPrompt(std::span<const ExpertLayout> layouts, const GpuInfo& gpu,
                       const GpuExpertIo& io, const Shape& shape)
    : layouts_(layouts.begin(), layouts.end()),
      gpu_(gpu),
      io_(io),
      shape_(shape),
      places_(PlaceLists(shape, gpu.limits)) {}

absl::StatusOr<std::unique_ptr<CudaPrompt>> CudaPrompt::Create(
    std::span<const ExpertLayout> layouts, const GpuInfo& gpu, const GpuExpertIo& io,
    const Shape& shape) {
  HEARTH_CHECK(IsNeeded(layouts, gpu.limits, shape));
  std::unique_ptr<CudaPrompt> prompt(new CudaPrompt(layouts, gpu, io, shape));
  HEARTH_RETURN_IF_ERROR(prompt->Allocate());
  return prompt;
}

absl::Status CudaPrompt::Allocate() {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t workspace_bytes, WorkspaceBytes(layouts_, shape_));
  HEARTH_ASSIGN_OR_RETURN(PinnedBuffer pinned, PinnedBuffer::Create(gpu_.id, places_.bytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer lists, DeviceBuffer::Create(gpu_.id, places_.bytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::Create(gpu_.id, workspace_bytes));
  pinned_.emplace(std::move(pinned));
  lists_.emplace(std::move(lists));
  workspace_.emplace(std::move(workspace));
  std::byte* const base = pinned_->data().data();
  const uint32_t entries = EntriesMax(shape_);
  items_ = {reinterpret_cast<ExpertFfnItem*>(base), entries};
  entries_ = {reinterpret_cast<ExpertFfnEntry*>(base + places_.entries_offset_bytes), entries};
  tiles_ = {reinterpret_cast<ExpertGemmTile*>(base + places_.tiles_offset_bytes),
            places_.tile_count};
  cut_.tiles.reserve(places_.tile_count);
  parts_.reserve(entries);
  return absl::OkStatus();
}

void CudaPrompt::Begin(LayerId layer, const WindowPlan& plan, uint32_t rows) {
  HEARTH_CHECK(Takes(layer, rows));
  kind_ = plan.entries.size() < plan.experts.size() * kWarpgroupRowsMin
              ? ExpertGemmKind::kWarp
              : ExpertGemmKindFor(gpu_.limits);
  layer_ = layer;
  rows_ = rows;
  rows_ready_ = false;
  made_ = sent_ = {};
  BeginList();
}

void CudaPrompt::BeginList() {
  parts_.clear();
  part_item_begin_ = made_.items;
}

void CudaPrompt::Add(const WindowPlan& plan, uint32_t index, const std::byte* blob) {
  const PlannedExpert& planned = plan.experts[index];
  HEARTH_CHECK(made_.items < items_.size() &&
               made_.entries + planned.entry_count <= entries_.size());
  items_[made_.items++] = {
      .blob = blob, .entry_begin = made_.entries, .entry_count = planned.entry_count};
  for (uint32_t i = 0; i < planned.entry_count; ++i) {
    const RouteEntry& entry = plan.entries[planned.entry_begin + i];
    entries_[made_.entries++] = {.x_row = entry.row,
                                 .y_row = entry.row * shape_.ranks + entry.rank};
  }
}

void CudaPrompt::EndPart() {
  CutExpertGemm(items_.subspan(part_item_begin_, made_.items - part_item_begin_),
                ExpertGemmColumnsMax(kind_, gpu_.limits), cut_);
  HEARTH_CHECK(made_.tiles + cut_.tiles.size() <= tiles_.size());
  parts_.push_back({.tile_begin = made_.tiles, .class_begin = cut_.class_begin});
  for (ExpertGemmTile tile : cut_.tiles) {
    tile.item += part_item_begin_;
    tiles_[made_.tiles++] = tile;
  }
  part_item_begin_ = made_.items;
}

template <class T>
absl::Status CudaPrompt::Put(uint64_t offset_bytes, std::span<const T> all, uint32_t begin,
                             uint32_t end) {
  if (begin == end) return absl::OkStatus();
  return CopyToDevice(std::as_bytes(all.subspan(begin, end - begin)), *lists_,
                      offset_bytes + begin * sizeof(T), io_.stream);
}

absl::Status CudaPrompt::PutList() {
  const Counts from = std::exchange(sent_, made_);
  HEARTH_RETURN_IF_ERROR(Put<ExpertFfnItem>(0, items_, from.items, made_.items));
  HEARTH_RETURN_IF_ERROR(
      Put<ExpertFfnEntry>(places_.entries_offset_bytes, entries_, from.entries, made_.entries));
  return Put<ExpertGemmTile>(places_.tiles_offset_bytes, tiles_, from.tiles, made_.tiles);
}

absl::Status CudaPrompt::Launch(uint32_t part) {
  const ExpertLayout& layout = layouts_[layer_.value];
  ExpertGemmDesc desc = DescOf(layout, shape_, kind_);
  HEARTH_ASSIGN_OR_RETURN(const ExpertGemmPlan plan, PlanExpertGemm(desc));
  HEARTH_CHECK(plan.workspace_bytes <= workspace_->bytes());
  desc.row_count = rows_;
  if (!std::exchange(rows_ready_, true)) {
    HEARTH_RETURN_IF_ERROR(LaunchExpertGemmRows(
        desc, plan, {.q = io_.u.q, .scale = io_.u.scale, .workspace = workspace_->data()},
        io_.stream));
  }
  const std::byte* const lists = lists_->data();
  const ExpertGemmArgs args{
      .items = reinterpret_cast<const ExpertFfnItem*>(lists),
      .entries = reinterpret_cast<const ExpertFfnEntry*>(lists + places_.entries_offset_bytes),
      .tiles = reinterpret_cast<const ExpertGemmTile*>(lists + places_.tiles_offset_bytes) +
               parts_[part].tile_begin,
      .y = io_.output,
      .y_stride = layout.hidden,
      .workspace = workspace_->data()};
  return LaunchExpertGemm(desc, plan, parts_[part].class_begin, args, io_.stream);
}

}  // namespace hearth
