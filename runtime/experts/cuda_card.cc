#include "runtime/experts/cuda_card.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/xt/expert_xt.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/experts/bounded_wait.h"

namespace hearth {
namespace {

constexpr uint64_t kListAlignBytes = 256;

uint32_t EntriesMax(const CudaCardOptions& options) { return options.rows_max * options.ranks; }

ExpertFfnDesc Nvfp4Desc(const ExpertLayout& layout, uint32_t items, uint32_t rows,
                        uint32_t entries) {
  return {.layout = layout, .item_count = items, .rows_max = rows, .entry_count = entries};
}

// Bounds only: the sums in the workspace keep their places from launch to launch.
ExpertXtDesc XtDesc(const ExpertLayout& layout, const CudaCardOptions& options, uint32_t rows) {
  return {.layout = layout,
          .item_count_max = EntriesMax(options),
          .rows_max = rows,
          .entry_count_max = EntriesMax(options)};
}

}  // namespace

uint64_t CudaCard::ListBytes(uint64_t items, uint64_t entries) {
  return kListHeadBytes + items * sizeof(ExpertFfnItem) + entries * sizeof(ExpertFfnEntry);
}

std::vector<CudaCard::ListPlace> CudaCard::PlaceLists(const CudaCardOptions& options,
                                                      uint64_t* bytes) {
  std::vector<ListPlace> places;
  *bytes = 0;
  const auto add = [&](uint64_t items, uint64_t entries) {
    places.push_back({.offset_bytes = *bytes, .bytes = ListBytes(items, entries)});
    *bytes += AlignUp(places.back().bytes, kListAlignBytes);
  };
  add(EntriesMax(options), EntriesMax(options));
  for (uint32_t i = 0; i < options.arrivals_max; ++i) {
    add(ExpertItems::ItemsOfExpertMax(options.rows_max), options.rows_max);
  }
  return places;
}

absl::StatusOr<uint64_t> CudaCard::WorkspaceBytes(std::span<const ExpertLayout> layouts,
                                                  const GpuLimits& gpu,
                                                  const CudaCardOptions& options) {
  uint64_t bytes = kListAlignBytes;
  const uint32_t entries = EntriesMax(options);
  for (const ExpertLayout& layout : layouts) {
    if (layout.format == ExpertFormat::kNvfp4) {
      for (uint32_t rows = 1; rows <= kExpertRowsMax; ++rows) {
        HEARTH_ASSIGN_OR_RETURN(const ExpertFfnPlan plan,
                                PlanExpertFfn(Nvfp4Desc(layout, entries, rows, entries), gpu));
        bytes = std::max(bytes, plan.workspace_bytes);
      }
    } else if (layout.format == ExpertFormat::kXt) {
      HEARTH_ASSIGN_OR_RETURN(const ExpertXtPlan plan,
                              PlanExpertXt(XtDesc(layout, options, kExpertRowsMax), gpu));
      bytes = std::max(bytes, plan.workspace_bytes);
    }
  }
  return bytes;
}

absl::StatusOr<uint64_t> CudaCard::BufferBytes(std::span<const ExpertLayout> layouts,
                                               const GpuLimits& gpu,
                                               const CudaCardOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t workspace_bytes, WorkspaceBytes(layouts, gpu, options));
  uint64_t list_bytes = 0;
  (void)PlaceLists(options, &list_bytes);
  return workspace_bytes + list_bytes;
}

CudaCard::CudaCard(const Deps& deps, const CudaCardOptions& options)
    : deps_(deps),
      options_(options),
      name_(deps.gpu.name),
      layouts_(deps.layouts.begin(), deps.layouts.end()),
      item_memory_(EntriesMax(options)),
      entry_memory_(EntriesMax(options)),
      items_(item_memory_, entry_memory_) {}

CudaCard::~CudaCard() { (void)Retire(); }

absl::StatusOr<std::unique_ptr<CudaCard>> CudaCard::Create(const Deps& deps,
                                                           const CudaCardOptions& options) {
  HEARTH_CHECK(deps.io.on_card.size() >= EntriesMax(options));
  std::unique_ptr<CudaCard> card(new CudaCard(deps, options));
  HEARTH_RETURN_IF_ERROR(card->Allocate());
  return card;
}

absl::Status CudaCard::Allocate() {
  const GpuId gpu = deps_.gpu.id;
  HEARTH_ASSIGN_OR_RETURN(const uint64_t workspace_bytes,
                          WorkspaceBytes(layouts_, deps_.gpu.limits, options_));
  uint64_t list_bytes = 0;
  lists_ = PlaceLists(options_, &list_bytes);
  HEARTH_ASSIGN_OR_RETURN(PinnedBuffer pinned_lists, PinnedBuffer::Create(gpu, list_bytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer card_lists, DeviceBuffer::Create(gpu, list_bytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::Create(gpu, workspace_bytes));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent begin, UniqueEvent::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent end, UniqueEvent::Create(gpu));
  pinned_lists_.emplace(std::move(pinned_lists));
  card_lists_.emplace(std::move(card_lists));
  workspace_.emplace(std::move(workspace));
  begin_.emplace(std::move(begin));
  end_.emplace(std::move(end));
  return absl::OkStatus();
}

bool CudaCard::Computes(LayerId layer, const ExpertRows& rows) const {
  if (rows.quantized.q == nullptr || rows.rows > options_.rows_max) return false;
  const ExpertFormat format = layouts_[layer.value].format;
  return format == ExpertFormat::kNvfp4 ||
         (format == ExpertFormat::kXt && deps_.io.u_rotated.q != nullptr);
}

void CudaCard::MarkEntries(uint32_t index) {
  const PlannedExpert& planned = plan_->experts[index];
  for (uint32_t i = 0; i < planned.entry_count; ++i) {
    const RouteEntry& entry = plan_->entries[planned.entry_begin + i];
    deps_.io.on_card[size_t{entry.row} * options_.ranks + entry.rank] = 1;
  }
}

absl::Status CudaCard::Begin(LayerId layer, const WindowPlan& plan, const ExpertRows&,
                             std::span<const CardExpert> experts) {
  const std::lock_guard lock(mutex_);
  layer_ = layer;
  plan_ = &plan;
  launch_count_ = arrival_count_ = 0;
  status_ = absl::OkStatus();
  if (experts.empty()) return absl::OkStatus();
  items_.Clear();
  for (const CardExpert& expert : experts) {
    items_.Add(plan, expert.index, options_.ranks, deps_.slots.Address(expert.slot));
    MarkEntries(expert.index);
  }
  status_ = Launch(0);
  // What was enqueued before the error is waited for all the same.
  if (!status_.ok()) (void)end_->Record(deps_.io.stream);
  return status_;
}

void CudaCard::Arrive(const CardExpert& expert) {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return;
  HEARTH_CHECK(arrival_count_ < options_.arrivals_max);
  items_.Clear();
  items_.Add(*plan_, expert.index, options_.ranks, deps_.slots.Address(expert.slot));
  MarkEntries(expert.index);
  status_ = Launch(++arrival_count_);
}

absl::Status CudaCard::Launch(uint32_t list) {
  const std::span<const ExpertFfnItem> items = items_.items();
  const std::span<const ExpertFfnEntry> entries = items_.entries();
  const ListPlace& place = lists_[list];
  const uint64_t bytes = ListBytes(items.size(), entries.size());
  HEARTH_CHECK(bytes <= place.bytes);
  const std::span<std::byte> pinned = pinned_lists_->data().subspan(place.offset_bytes, bytes);
  const auto item_count = static_cast<uint32_t>(items.size());
  std::memcpy(pinned.data(), &item_count, sizeof(item_count));
  std::memcpy(pinned.data() + kListHeadBytes, items.data(), items.size_bytes());
  std::memcpy(pinned.data() + kListHeadBytes + items.size_bytes(), entries.data(),
              entries.size_bytes());

  const CudaStreamView stream = deps_.io.stream;
  if (launch_count_++ == 0) HEARTH_RETURN_IF_ERROR(begin_->Record(stream));
  HEARTH_RETURN_IF_ERROR(CopyToDevice(pinned, *card_lists_, place.offset_bytes, stream));
  const std::byte* const on_card = card_lists_->data() + place.offset_bytes;
  const auto* const card_items = reinterpret_cast<const ExpertFfnItem*>(on_card + kListHeadBytes);
  const auto* const card_entries =
      reinterpret_cast<const ExpertFfnEntry*>(on_card + kListHeadBytes + items.size_bytes());
  if (layouts_[layer_.value].format == ExpertFormat::kNvfp4) {
    return LaunchNvfp4(card_items, card_entries);
  }
  return LaunchXt(reinterpret_cast<const uint32_t*>(on_card), card_items, card_entries);
}

absl::Status CudaCard::LaunchNvfp4(const ExpertFfnItem* items, const ExpertFfnEntry* entries) {
  const ExpertFfnDesc desc =
      Nvfp4Desc(layouts_[layer_.value], static_cast<uint32_t>(items_.items().size()),
                items_.rows_max(), static_cast<uint32_t>(items_.entries().size()));
  HEARTH_ASSIGN_OR_RETURN(const ExpertFfnPlan plan, PlanExpertFfn(desc, deps_.gpu.limits));
  HEARTH_CHECK(plan.workspace_bytes <= workspace_->bytes());
  workspace_is_clean_ = false;
  const QuantizedRows& u = deps_.io.u;
  return LaunchExpertFfn(desc, plan,
                         {.items = items,
                          .entries = entries,
                          .q = u.q,
                          .scale = u.scale,
                          .sum16 = u.sum16,
                          .y = deps_.io.output,
                          .y_stride = desc.layout.hidden,
                          .workspace = workspace_->data()},
                         deps_.io.stream);
}

absl::Status CudaCard::LaunchXt(const uint32_t* item_count, const ExpertFfnItem* items,
                                const ExpertFfnEntry* entries) {
  const ExpertXtDesc desc = XtDesc(layouts_[layer_.value], options_, items_.rows_max());
  HEARTH_ASSIGN_OR_RETURN(const ExpertXtPlan plan, PlanExpertXt(desc, deps_.gpu.limits));
  const CudaStreamView stream = deps_.io.stream;
  if (!workspace_is_clean_) {
    HEARTH_RETURN_IF_ERROR(ResetExpertXtWorkspace(plan, *workspace_, 0, stream));
  }
  workspace_is_clean_ = false;  // until it is known to have been launched
  const XtRows& u = deps_.io.u_rotated;
  HEARTH_RETURN_IF_ERROR(LaunchExpertXt(desc, plan,
                                        {.item_count = item_count,
                                         .items = items,
                                         .entries = entries,
                                         .q = u.q,
                                         .scale = u.scale,
                                         .sum = u.sum,
                                         .y = deps_.io.output,
                                         .y_stride = desc.layout.hidden,
                                         .workspace = workspace_->data()},
                                        stream));
  workspace_is_clean_ = true;
  return absl::OkStatus();
}

absl::Status CudaCard::Finish() {
  const std::lock_guard lock(mutex_);
  if (launch_count_ > 0) status_.Update(end_->Record(deps_.io.stream));
  return status_;
}

absl::StatusOr<int64_t> CudaCard::Retire() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(launch_count_, 0) == 0) return 0;
  absl::StatusOr<bool> passed = false;
  const bool in_time = AwaitFor(deps_.clock, options_.wait_ns, [&] {
    passed = end_->HasPassed();
    return !passed.ok() || *passed;
  });
  if (!passed.ok()) return Annotate(passed.status(), absl::StrCat("layer ", layer_.value));
  if (!in_time) {
    return absl::DeadlineExceededError(absl::StrCat(
        "layer ", layer_.value, ": ", name_, " has not computed its experts within ",
        options_.wait_ns / 1'000'000, " ms; restart, and see the kernel's log for it"));
  }
  HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(*begin_, *end_));
  return static_cast<int64_t>(seconds * 1e9);
}

}  // namespace hearth
