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
constexpr uint64_t kItemAlignBytes = 16;
// Lists by their places; those of arrivals follow.
constexpr uint32_t kHitList = 0;
constexpr uint32_t kStreamList = 1;
constexpr uint32_t kFirstArrivalList = 2;

uint32_t EntriesMax(const CudaCardOptions& options) { return options.rows_max * options.ranks; }

CudaPrompt::Shape PromptShape(const CudaCardOptions& options) {
  return {.rows_max = options.rows_max, .ranks = options.ranks};
}

// Of NVFP4 experts in passes that are not CudaPrompt's.
uint32_t WindowEntriesMax(const GpuLimits& gpu, const CudaCardOptions& options) {
  const bool has_prompts = ExpertGemmColumnsMax(ExpertGemmKind::kWarp, gpu) > 0;
  const uint32_t rows =
      has_prompts ? std::min(options.rows_max, kCudaPromptRowsMin - 1) : options.rows_max;
  return rows * options.ranks;
}

ExpertFfnDesc Nvfp4Desc(const ExpertLayout& layout, uint32_t items, uint32_t rows,
                        uint32_t entries) {
  return {.layout = layout,
          .item_count = items,
          .rows_max = rows,
          .entry_count = entries,
          .allows_one_launch = true};
}

// Bounds only: the sums in the workspace keep their places from launch to launch.
ExpertXtDesc XtDesc(const ExpertLayout& layout, const CudaCardOptions& options, uint32_t rows) {
  return {.layout = layout,
          .item_count_max = EntriesMax(options),
          .rows_max = rows,
          .entry_count_max = EntriesMax(options)};
}

}  // namespace

uint64_t CudaCard::ListBytes(uint64_t parts, uint64_t items, uint64_t entries) {
  return AlignUp(parts * sizeof(uint32_t), kItemAlignBytes) + items * sizeof(ExpertFfnItem) +
         entries * sizeof(ExpertFfnEntry);
}

uint64_t CudaCard::BlobBytesMax(std::span<const ExpertLayout> layouts) {
  uint64_t bytes = 0;
  for (const ExpertLayout& layout : layouts) bytes = std::max(bytes, layout.stride_bytes());
  return AlignUp(bytes, kListAlignBytes);
}

std::vector<CudaCard::ListPlace> CudaCard::PlaceLists(const CudaCardOptions& options,
                                                      uint64_t* bytes) {
  std::vector<ListPlace> places;
  *bytes = 0;
  const auto add = [&](uint64_t parts, uint64_t items, uint64_t entries) {
    places.push_back({.offset_bytes = *bytes, .bytes = ListBytes(parts, items, entries)});
    *bytes += AlignUp(places.back().bytes, kListAlignBytes);
  };
  const uint32_t entries = EntriesMax(options);
  add(1, entries, entries);
  add(StreamRing::GroupCount(entries), entries, entries);
  for (uint32_t i = 0; i < options.arrivals_max; ++i) {
    add(1, ExpertItems::ItemsOfExpertMax(options.rows_max), options.rows_max);
  }
  return places;
}

absl::StatusOr<CudaCard::WorkspaceBytes> CudaCard::PlanWorkspaces(
    std::span<const ExpertLayout> layouts, const GpuLimits& gpu, const CudaCardOptions& options) {
  WorkspaceBytes bytes;
  const uint32_t entries = WindowEntriesMax(gpu, options);
  for (const ExpertLayout& layout : layouts) {
    if (layout.format == ExpertFormat::kNvfp4) {
      for (uint32_t rows = 1; rows <= kExpertRowsMax; ++rows) {
        HEARTH_ASSIGN_OR_RETURN(const ExpertFfnPlan plan,
                                PlanExpertFfn(Nvfp4Desc(layout, entries, rows, entries), gpu));
        bytes.nvfp4 = std::max(bytes.nvfp4, plan.workspace_bytes);
      }
    } else if (layout.format == ExpertFormat::kXt) {
      HEARTH_ASSIGN_OR_RETURN(const ExpertXtPlan plan,
                              PlanExpertXt(XtDesc(layout, options, kExpertRowsMax), gpu));
      bytes.xt = std::max(bytes.xt, plan.workspace_bytes);
    }
  }
  return bytes;
}

absl::StatusOr<uint64_t> CudaCard::BufferBytes(std::span<const ExpertLayout> layouts,
                                               const GpuLimits& gpu,
                                               const CudaCardOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const WorkspaceBytes workspace, PlanWorkspaces(layouts, gpu, options));
  uint64_t list_bytes = 0;
  (void)PlaceLists(options, &list_bytes);
  uint64_t prompt_bytes = 0;
  if (CudaPrompt::IsNeeded(layouts, gpu, PromptShape(options))) {
    HEARTH_ASSIGN_OR_RETURN(prompt_bytes,
                            CudaPrompt::BufferBytes(layouts, gpu, PromptShape(options)));
  }
  return workspace.nvfp4 + workspace.xt + list_bytes + prompt_bytes +
         StreamRing::BytesFor(BlobBytesMax(layouts));
}

CudaCard::CudaCard(const Deps& deps, const CudaCardOptions& options)
    : deps_(deps),
      options_(options),
      name_(deps.gpu.name),
      layouts_(deps.layouts.begin(), deps.layouts.end()),
      host_entries_(deps.layouts.size() * options.expert_count),
      item_memory_(EntriesMax(options)),
      entry_memory_(EntriesMax(options)),
      items_(item_memory_, entry_memory_) {
  parts_.reserve(StreamRing::GroupCount(EntriesMax(options)));
}

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
  HEARTH_ASSIGN_OR_RETURN(const WorkspaceBytes workspace,
                          PlanWorkspaces(layouts_, deps_.gpu.limits, options_));
  uint64_t list_bytes = 0;
  lists_ = PlaceLists(options_, &list_bytes);
  HEARTH_ASSIGN_OR_RETURN(PinnedBuffer pinned_lists, PinnedBuffer::Create(gpu, list_bytes));
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer card_lists, DeviceBuffer::Create(gpu, list_bytes));
  for (const auto& [bytes, buffer] :
       {std::pair(workspace.nvfp4, &nvfp4_workspace_), std::pair(workspace.xt, &xt_workspace_)}) {
    if (bytes == 0) continue;
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Create(gpu, bytes));
    buffer->emplace(std::move(memory));
  }
  if (nvfp4_workspace_) {
    HEARTH_RETURN_IF_ERROR(ResetExpertFfnWorkspace(*nvfp4_workspace_, deps_.io.stream));
  }
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent begin, UniqueEvent::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent end, UniqueEvent::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(StreamRing ring,
                          StreamRing::Create(gpu, BlobBytesMax(layouts_), deps_.slots.pinned()));
  for (const ExpertLayout& layout : layouts_) {
    if (layout.format != ExpertFormat::kXt || xt_sums_are_zero_) continue;
    // The same for all layers: where the sums are follows from the bounds.
    HEARTH_ASSIGN_OR_RETURN(const ExpertXtPlan plan,
                            PlanExpertXt(XtDesc(layout, options_, 1), deps_.gpu.limits));
    HEARTH_RETURN_IF_ERROR(ResetExpertXtWorkspace(plan, *xt_workspace_, 0, deps_.io.stream));
    xt_sums_are_zero_ = true;
  }
  if (CudaPrompt::IsNeeded(layouts_, deps_.gpu.limits, PromptShape(options_))) {
    HEARTH_ASSIGN_OR_RETURN(
        prompt_, CudaPrompt::Create(layouts_, deps_.gpu, deps_.io, PromptShape(options_)));
  }
  pinned_lists_.emplace(std::move(pinned_lists));
  card_lists_.emplace(std::move(card_lists));
  begin_.emplace(std::move(begin));
  end_.emplace(std::move(end));
  ring_.emplace(std::move(ring));
  return absl::OkStatus();
}

bool CudaCard::ComputesFormat(LayerId layer) const {
  const ExpertFormat format = layouts_[layer.value].format;
  return format == ExpertFormat::kNvfp4 ||
         (format == ExpertFormat::kXt && deps_.io.u_rotated.q != nullptr);
}

bool CudaCard::Computes(LayerId layer, const ExpertRows& rows) const {
  if (rows.quantized.q == nullptr || rows.rows > options_.rows_max) return false;
  if (deps_.io.lists != nullptr && !is_recorded_) return false;  // nothing waits for lists
  return ComputesFormat(layer);
}

std::span<const EntryClaim> CudaCard::Claims(LayerId, std::span<const uint32_t>) {
  return deps_.io.lists == nullptr ? std::span<const EntryClaim>() : deps_.io.lists->claims();
}

// Only of layers for which RecordExperts() records something.
void CudaCard::SetSlot(ExpertKey key, SlotRef slot) {
  if (deps_.io.table == nullptr || !ComputesFormat(key.layer)) return;
  const uint64_t entry =
      slot.valid()
          ? reinterpret_cast<uintptr_t>(deps_.slots.Address(slot))
          : host_entries_[size_t{key.layer.value} * options_.expert_count + key.expert.value];
  deps_.io.table->SetEntry(key.layer, key.expert, entry);
}

void CudaCard::SetHostBytes(ExpertKey key, std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<uintptr_t>(deps_.slots.pinned().CardAddress(bytes));
  if (address == 0) return;
  host_entries_[size_t{key.layer.value} * options_.expert_count + key.expert.value] =
      address | kFromAfar;
  SetSlot(key, SlotRef());
}

void CudaCard::SetStreamRule(const StreamRule& rule) {
  if (deps_.io.table != nullptr) deps_.io.table->SetStreamRule(rule);
}

// An expert of the list at hand, whose entries are the card's from now on.
void CudaCard::Add(uint32_t index, const std::byte* blob) {
  if (is_prompt_) {
    prompt_->Add(*plan_, index, blob);
  } else {
    items_.Add(*plan_, index, options_.ranks, blob);
  }
  if (sink_ != nullptr) return;  // the card knows them from the list
  const PlannedExpert& planned = plan_->experts[index];
  for (uint32_t i = 0; i < planned.entry_count; ++i) {
    const RouteEntry& entry = plan_->entries[planned.entry_begin + i];
    deps_.io.on_card[size_t{entry.row} * options_.ranks + entry.rank] = 1;
  }
}

void CudaCard::BeginList() {
  items_.Clear();
  parts_.clear();
  if (is_prompt_) prompt_->BeginList();
}

// A launch knows the entries of its own part only: items count them from the part's first.
void CudaCard::EndPart() {
  if (is_prompt_) return prompt_->EndPart();
  uint32_t items = 0, entries = 0;
  for (const Part& part : parts_) {
    items += part.item_count;
    entries += part.entry_count;
  }
  const auto item_count = static_cast<uint32_t>(items_.items().size());
  for (uint32_t i = items; i < item_count; ++i) item_memory_[i].entry_begin -= entries;
  parts_.push_back({.item_count = item_count - items,
                    .entry_count = static_cast<uint32_t>(items_.entries().size()) - entries,
                    .rows_max = items_.rows_max()});
}

absl::Status CudaCard::PutList(uint32_t list) {
  const CudaStreamView stream = deps_.io.stream;
  if (!std::exchange(has_begun_, true)) HEARTH_RETURN_IF_ERROR(begin_->Record(stream));
  if (is_prompt_) return prompt_->PutList();
  const std::span<const ExpertFfnItem> items = items_.items();
  const std::span<const ExpertFfnEntry> entries = items_.entries();
  const ListPlace& place = lists_[list];
  const uint64_t bytes = ListBytes(parts_.size(), items.size(), entries.size());
  HEARTH_CHECK(bytes <= place.bytes);
  const std::span<std::byte> pinned = pinned_lists_->data().subspan(place.offset_bytes, bytes);
  const uint64_t items_at = AlignUp(parts_.size() * sizeof(uint32_t), kItemAlignBytes);
  const uint64_t entries_at = items_at + items.size_bytes();
  std::memcpy(pinned.data() + items_at, items.data(), items.size_bytes());
  std::memcpy(pinned.data() + entries_at, entries.data(), entries.size_bytes());
  const std::byte* const on_card = card_lists_->data() + place.offset_bytes;
  uint32_t first_item = 0, first_entry = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    std::memcpy(pinned.data() + i * sizeof(uint32_t), &part.item_count, sizeof(uint32_t));
    part.item_count_word = reinterpret_cast<const uint32_t*>(on_card) + i;
    part.items = reinterpret_cast<const ExpertFfnItem*>(on_card + items_at) + first_item;
    part.entries = reinterpret_cast<const ExpertFfnEntry*>(on_card + entries_at) + first_entry;
    first_item += part.item_count;
    first_entry += part.entry_count;
  }
  return CopyToDevice(pinned, *card_lists_, place.offset_bytes, stream);
}

absl::Status CudaCard::LaunchPart(uint32_t part) {
  return is_prompt_ ? prompt_->Launch(part) : Launch(layer_, parts_[part]);
}

absl::Status CudaCard::Launch(LayerId layer, const Part& part) {
  const ExpertLayout& layout = layouts_[layer.value];
  return layout.format == ExpertFormat::kNvfp4 ? LaunchNvfp4(layout, part) : LaunchXt(layout, part);
}

// The bounds of any list of such a window: its kernels read what there is.
absl::Status CudaCard::RecordExperts(LayerId layer, uint32_t rows, const CardList& list) {
  const std::lock_guard lock(mutex_);
  if (!ComputesFormat(layer)) return absl::OkStatus();
  HEARTH_CHECK(rows <= options_.rows_max);
  is_recorded_ = true;
  const uint32_t entries = rows * options_.ranks;
  return Launch(layer, {.item_count_word = list.item_count,
                        .items = list.items,
                        .entries = list.entries,
                        .item_count = entries,
                        .entry_count = entries,
                        .rows_max = std::min(rows, kExpertRowsMax)});
}

// The card has begun by itself. It waits for a late list exactly if it has not claimed everything.
absl::Status CudaCard::BeginRecorded() {
  late_left_ = 0;
  for (const PlannedExpert& planned : plan_->experts) {
    const RouteEntry& first = plan_->entries[planned.entry_begin];
    const EntryClaim claim = sink_->claims()[size_t{first.row} * options_.ranks + first.rank];
    late_follows_ |= options_.takes_late && claim == EntryClaim::kHost;
    if (planned.service != Service::kPcie) continue;
    (claim == EntryClaim::kStreamed ? streamed_count_ : late_left_) += 1;
  }
  claims_streams_ = streamed_count_ != 0;
  return late_follows_ && late_left_ == 0 ? PostLate() : absl::OkStatus();
}

absl::Status CudaCard::PostLate() {
  late_follows_ = false;
  return sink_->PostLate(layer_, {.items = items_.items(), .entries = items_.entries()});
}

absl::Status CudaCard::Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& rows,
                             std::span<const CardExpert> experts) {
  const std::lock_guard lock(mutex_);
  layer_ = layer;
  plan_ = &plan;
  sink_ = deps_.io.lists;
  if (sink_ != nullptr) window_ = sink_->window();
  has_begun_ = late_follows_ = false;
  arrival_count_ = streamed_count_ = 0;
  is_prompt_ = sink_ == nullptr && prompt_ != nullptr && prompt_->Takes(layer, rows.rows);
  if (is_prompt_) prompt_->Begin(layer, plan, rows.rows);
  BeginList();
  for (const CardExpert& expert : experts) Add(expert.index, deps_.slots.Address(expert.slot));
  if (sink_ != nullptr) return status_ = BeginRecorded();
  status_ = absl::OkStatus();
  if (experts.empty()) return status_;
  EndPart();
  status_ = PutList(kHitList);
  if (status_.ok()) status_ = LaunchPart(0);
  return status_;
}

bool CudaCard::Streams(std::span<const std::byte> bytes) const {
  const PinnedRanges& pinned = deps_.slots.pinned();
  return deps_.io.lists == nullptr ? pinned.AllPinned(bytes) : pinned.CardAddress(bytes) != nullptr;
}

// One list for all of them, a part for each group: the blobs' places are known beforehand.
absl::Status CudaCard::Stream(std::span<const StreamedExpert> experts) {
  const std::lock_guard lock(mutex_);
  if (sink_ != nullptr) {
    for (const StreamedExpert& expert : experts) {
      Add(expert.index, deps_.slots.pinned().CardAddress(expert.bytes));
    }
    streamed_count_ = static_cast<uint32_t>(experts.size());
    late_left_ -= streamed_count_;
    if (late_left_ == 0) status_ = PostLate();
    return status_;
  }
  BeginList();
  for (size_t i = 0; i < experts.size(); ++i) {
    Add(experts[i].index, ring_->AddressOf(i));
    if ((i + 1) % kStreamGroup == 0 || i + 1 == experts.size()) EndPart();
  }
  streamed_count_ = static_cast<uint32_t>(experts.size());
  status_.Update(PutList(kStreamList));
  if (status_.ok()) {
    status_ =
        ring_->Run(experts, deps_.io.stream, [&](uint32_t group) { return LaunchPart(group); });
  }
  return status_;
}

// A list is posted by one thread, so that of a recorded window waits for Finish().
void CudaCard::Arrive(const CardExpert& expert) {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return;
  if (sink_ != nullptr) return Add(expert.index, deps_.slots.Address(expert.slot));
  HEARTH_CHECK(arrival_count_ < options_.arrivals_max);
  BeginList();
  Add(expert.index, deps_.slots.Address(expert.slot));
  EndPart();
  status_ = PutList(kFirstArrivalList + arrival_count_++);
  if (status_.ok()) status_ = LaunchPart(0);
}

absl::Status CudaCard::LaunchNvfp4(const ExpertLayout& layout, const Part& part) {
  const ExpertFfnDesc desc = Nvfp4Desc(layout, part.item_count, part.rows_max, part.entry_count);
  HEARTH_ASSIGN_OR_RETURN(const ExpertFfnPlan plan, PlanExpertFfn(desc, deps_.gpu.limits));
  HEARTH_CHECK(plan.workspace_bytes <= nvfp4_workspace_->bytes());
  const QuantizedRows& u = deps_.io.u;
  return LaunchExpertFfn(desc, plan,
                         {.items = part.items,
                          .item_count = part.item_count_word,
                          .entries = part.entries,
                          .q = u.q,
                          .scale = u.scale,
                          .sum16 = u.sum16,
                          .y = deps_.io.output,
                          .y_stride = layout.hidden,
                          .workspace = nvfp4_workspace_->data()},
                         deps_.io.stream);
}

absl::Status CudaCard::LaunchXt(const ExpertLayout& layout, const Part& part) {
  const ExpertXtDesc desc = XtDesc(layout, options_, part.rows_max);
  HEARTH_ASSIGN_OR_RETURN(const ExpertXtPlan plan, PlanExpertXt(desc, deps_.gpu.limits));
  const CudaStreamView stream = deps_.io.stream;
  if (!xt_sums_are_zero_) {
    HEARTH_RETURN_IF_ERROR(ResetExpertXtWorkspace(plan, *xt_workspace_, 0, stream));
  }
  xt_sums_are_zero_ = false;  // until it is known to have been launched
  const XtRows& u = deps_.io.u_rotated;
  HEARTH_RETURN_IF_ERROR(LaunchExpertXt(desc, plan,
                                        {.item_count = part.item_count_word,
                                         .items = part.items,
                                         .entries = part.entries,
                                         .q = u.q,
                                         .scale = u.scale,
                                         .sum = u.sum,
                                         .y = deps_.io.output,
                                         .y_stride = layout.hidden,
                                         .workspace = xt_workspace_->data()},
                                        stream));
  xt_sums_are_zero_ = true;
  return absl::OkStatus();
}

// After an error, too: what was enqueued before it is waited for all the same.
absl::Status CudaCard::Finish() {
  const std::lock_guard lock(mutex_);
  if (sink_ != nullptr && late_follows_) status_.Update(PostLate());
  if (has_begun_) status_.Update(end_->Record(deps_.io.stream));
  return status_;
}

absl::StatusOr<CardTimes> CudaCard::Retire() {
  const std::lock_guard lock(mutex_);
  CardTimes times;
  if (GpuListSink* const sink = std::exchange(sink_, nullptr); sink != nullptr) {
    HEARTH_RETURN_IF_ERROR(sink->AwaitPassed(layer_));
    if (!status_.ok()) return times;
    const GpuListTimes spent = sink->Times(window_, layer_);
    times.layer_ns = spent.hits_ns + spent.late_ns;
    const int64_t stream_ns = claims_streams_ ? spent.hits_ns : spent.late_ns;
    if (streamed_count_ == 0 || stream_ns == 0) return times;
    times.stream_ns = stream_ns;
    times.streamed_count = streamed_count_;
    times.stream_begin_ns = claims_streams_ ? spent.hits_begin_ns : spent.late_begin_ns;
    return times;
  }
  if (!std::exchange(has_begun_, false)) return times;
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
  if (!status_.ok()) return times;
  HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(*begin_, *end_));
  times.layer_ns = static_cast<int64_t>(seconds * 1e9);
  if (streamed_count_ == 0) return times;
  HEARTH_ASSIGN_OR_RETURN(const double stream_seconds, ring_->Seconds());
  times.stream_ns = static_cast<int64_t>(stream_seconds * 1e9);
  times.streamed_count = streamed_count_;
  return times;
}

}  // namespace hearth
