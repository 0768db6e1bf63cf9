#include "gpu_kernels/ops/exchange/exchange_host.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/spin_wait.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

uint64_t Load(uint64_t& word) {
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire);
}
void Post(uint64_t& word, uint32_t tag, uint32_t payload) {
  std::atomic_ref<uint64_t>(word).store(TaggedWord(tag, payload), std::memory_order_release);
}

const char* NameOf(uint32_t stage) {
  switch (static_cast<ExchangeStage>(stage)) {
    case ExchangeStage::kHits:
      return "the list of experts in VRAM";
    case ExchangeStage::kLate:
      return "the list of uploaded experts";
    case ExchangeStage::kOutputs:
      return "the CPU's outputs";
    case ExchangeStage::kNone:
      break;
  }
  return "the host";
}

absl::Status CheckList(const ExpertList& list, uint32_t entries_max, LayerId layer,
                       const char* what) {
  const auto refuse = [&](const auto&... reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer.value, ": ", what, ": ", reason...));
  };
  if (list.entries.size() > entries_max || list.items.size() > list.entries.size()) {
    return refuse(list.items.size(), " items of ", list.entries.size(), " entries; at most ",
                  entries_max, " entries and no item without one");
  }
  for (const ExpertFfnItem& item : list.items) {
    const uint64_t address = reinterpret_cast<uintptr_t>(item.blob);
    if (address % 64 != 0 || address >> kItemAddressBits != 0) {
      return refuse("an expert at address ", address, "; a multiple of 64 below 2^",
                    kItemAddressBits);
    }
    if (item.entry_count < 1 || item.entry_count > kItemRowsMax ||
        uint64_t{item.entry_begin} + item.entry_count > list.entries.size()) {
      return refuse("an item with entries ", item.entry_begin, " + ", item.entry_count, "; 1 to ",
                    kItemRowsMax, " of the ", list.entries.size(), " there are");
    }
  }
  for (const ExpertFfnEntry& entry : list.entries) {
    if (entry.x_row >= kExchangeRowsMax || entry.y_row >= entries_max) {
      return refuse("an entry from row ", entry.x_row, " to ", entry.y_row, "; below ",
                    kExchangeRowsMax, " and ", entries_max);
    }
  }
  return absl::OkStatus();
}

}  // namespace

ExchangeHost::ExchangeHost(const ExchangeLayout& layout, std::span<std::byte> memory, Clock& clock,
                           uint32_t sequence)
    : layout_(layout),
      memory_(memory),
      clock_(clock),
      sequence_(sequence),
      experts_(layout.entries_max()),
      weights_(layout.entries_max()),
      ahead_(layout.entries_max()),
      finder_(layout.shape.expert_count, layout.entries_max()) {
  next_table_.resize(layout.table_count());
  changed_.resize(layout.table_count());
  change_index_.reserve(kTableChangesMax);
  HEARTH_CHECK(memory.size() >= layout.bytes);
  HEARTH_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % 128 == 0);
}

std::span<uint64_t> ExchangeHost::Words(uint64_t offset_bytes, size_t count) const {
  return {reinterpret_cast<uint64_t*>(memory_.data() + offset_bytes), count};
}

uint32_t ExchangeHost::BeginWindow() {
  if (sequence_ == UINT32_MAX) {  // numbers start again, so no word of before may stay
    std::memset(memory_.data(), 0, layout_.sets_offset_bytes);
    sequence_ = 0;
  }
  ++sequence_;
  const uint64_t offset_bytes = layout_.StampsOffsetBytes(sequence_, 0);
  std::memset(memory_.data() + offset_bytes, 0, layout_.stamp_window_bytes());
  finder_.BeginWindow(rule_);
  claims_ = {};
  if (layout_.shape.expert_count != 0) {
    std::memcpy(memory_.data() + layout_.rule_offset_bytes, &rule_, sizeof(rule_));
  }
  Post(Words(layout_.window_offset_bytes, 1)[0], sequence_, ChangeTable());
  return sequence_;
}

// Makes what was set true; returns how many entries change.
uint32_t ExchangeHost::ChangeTable() {
  const std::span<uint64_t> table = Words(layout_.table_offset_bytes, layout_.table_count());
  const uint32_t count = change_count_;
  if (count > kTableChangesMax) {
    std::ranges::copy(next_table_, table.begin());
    std::ranges::fill(changed_, uint8_t{0});
  } else {
    auto* changes = reinterpret_cast<TableChange*>(memory_.data() + layout_.changes_offset_bytes);
    for (const uint32_t index : change_index_) {
      table[index] = next_table_[index];
      changed_[index] = 0;
      *changes++ = {.entry = next_table_[index], .index = index};
    }
  }
  change_index_.clear();
  change_count_ = 0;
  return count;
}

void ExchangeHost::SetEntry(LayerId layer, ExpertId expert, uint64_t entry) {
  const ExchangeShape& shape = layout_.shape;
  HEARTH_CHECK(layer.value < shape.layer_count && expert.value < shape.expert_count);
  HEARTH_CHECK((entry & ~kFromAfar) % 64 == 0);
  const uint32_t index = layer.value * shape.expert_count + expert.value;
  next_table_[index] = entry;
  if (changed_[index] != 0) return;
  changed_[index] = 1;
  if (change_count_++ < kTableChangesMax) change_index_.push_back(index);
}

uint64_t ExchangeHost::entry(LayerId layer, ExpertId expert) const {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count &&
               expert.value < layout_.shape.expert_count);
  return Words(layout_.table_offset_bytes,
               layout_.table_count())[layer.value * layout_.shape.expert_count + expert.value];
}

// DeadlineExceeded without a message when the words do not come, or the card's error.
absl::Status ExchangeHost::AwaitWords(std::span<uint64_t> words, int64_t deadline_ns) {
  constexpr uint32_t kStepsPerLook = 64;  // between looks at the clock and the error word
  SpinWait wait;
  uint32_t steps = 0;
  for (uint64_t& word : words) {
    while (TagOf(Load(word)) != sequence_) {
      wait.Pause();
      if (++steps % kStepsPerLook != 0) continue;
      HEARTH_RETURN_IF_ERROR(CardError());
      if (clock_.NowNs() >= deadline_ns) return absl::DeadlineExceededError("");
    }
  }
  return absl::OkStatus();
}

absl::Status ExchangeHost::AwaitLayer(LayerId layer, uint64_t offset_bytes, size_t count,
                                      const char* what, int64_t deadline_ns) {
  const absl::Status status =
      AwaitWords(Words(layout_.LayerOffsetBytes(layer.value) + offset_bytes, count), deadline_ns);
  if (status.ok() || !status.message().empty()) return status;
  return absl::DeadlineExceededError(
      absl::StrCat("layer ", layer.value, ": the GPU has not published ", what, " of window ",
                   sequence_, " in time: it is stalled or its work failed"));
}

absl::StatusOr<std::span<const uint32_t>> ExchangeHost::AwaitRoutes(LayerId layer, uint32_t rows,
                                                                    int64_t deadline_ns) {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count && rows <= layout_.shape.rows_max);
  const size_t count = size_t{rows} * layout_.shape.ranks;
  HEARTH_RETURN_IF_ERROR(
      AwaitLayer(layer, layout_.routes_offset_bytes, count, "the routes", deadline_ns));
  HEARTH_RETURN_IF_ERROR(
      AwaitLayer(layer, layout_.weights_offset_bytes, count, "the routes", deadline_ns));
  const uint64_t at = layout_.LayerOffsetBytes(layer.value);
  const std::span<uint64_t> experts = Words(at + layout_.routes_offset_bytes, count);
  const std::span<uint64_t> weights = Words(at + layout_.weights_offset_bytes, count);
  for (size_t i = 0; i < count; ++i) {
    experts_[i] = PayloadOf(Load(experts[i]));
    weights_[i] = std::bit_cast<float>(PayloadOf(Load(weights[i])));
  }
  route_count_ = count;
  if (layout_.shape.expert_count != 0) {
    const size_t first = size_t{layer.value} * layout_.shape.expert_count;
    claims_ = finder_.Find(Words(layout_.table_offset_bytes, layout_.table_count())
                               .subspan(first, layout_.shape.expert_count),
                           std::span<const uint32_t>(experts_).first(count));
  }
  return std::span<const uint32_t>(experts_).first(count);
}

std::span<const uint32_t> ExchangeHost::Ahead(LayerId layer, uint32_t rows) {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count && rows <= layout_.shape.rows_max);
  const size_t count = size_t{rows} * layout_.shape.ranks;
  const std::span<uint64_t> words =
      Words(layout_.LayerOffsetBytes(layer.value) + layout_.ahead_offset_bytes, count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = Load(words[i]);
    if (TagOf(word) != sequence_) return {};
    ahead_[i] = PayloadOf(word);
  }
  return std::span<const uint32_t>(ahead_).first(count);
}

absl::Status ExchangeHost::AwaitEnd(int64_t deadline_ns) {
  const absl::Status status = AwaitWords(Words(layout_.end_offset_bytes, 1), deadline_ns);
  if (status.ok()) return CardError();
  if (!status.message().empty()) return status;
  return absl::DeadlineExceededError(absl::StrCat("the GPU has not ended window ", sequence_,
                                                  " in time: it is stalled or its work failed"));
}

absl::StatusOr<PublishedRows> ExchangeHost::AwaitRows(LayerId layer, uint32_t rows,
                                                      int64_t deadline_ns) {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count);
  HEARTH_RETURN_IF_ERROR(AwaitLayer(layer, layout_.arrived_offset_bytes, kPublishBlocks,
                                    "the experts' rows", deadline_ns));
  return Rows(layer, rows);
}

PublishedRows ExchangeHost::Rows(LayerId layer, uint32_t rows) const {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count && rows <= layout_.shape.rows_max);
  const std::byte* set = memory_.data() + layout_.SetOffsetBytes(layer.value);
  const uint32_t hidden = layout_.shape.hidden;
  PublishedRows published;
  published.weight = weights_.data();
  if (layout_.shape.forms.quantized) {
    published.quantized = {
        .q = reinterpret_cast<const int8_t*>(set + layout_.q_offset_bytes),
        .scale = reinterpret_cast<const float*>(set + layout_.scale_offset_bytes),
        .sum16 = reinterpret_cast<const int32_t*>(set + layout_.sum16_offset_bytes),
        .rows = rows,
        .cols = hidden};
  }
  if (layout_.shape.forms.rotated) {
    published.rotated = {
        .q = reinterpret_cast<const int8_t*>(set + layout_.rotated_q_offset_bytes),
        .scale = reinterpret_cast<const float*>(set + layout_.rotated_scale_offset_bytes),
        .sum = reinterpret_cast<const int32_t*>(set + layout_.rotated_sum_offset_bytes),
        .rows = rows,
        .cols = hidden};
  }
  if (layout_.shape.forms.fp32) {
    published.x = reinterpret_cast<const float*>(set + layout_.x_offset_bytes);
  }
  return published;
}

absl::Status ExchangeHost::PostList(LayerId layer, std::span<uint64_t> words,
                                    const ExpertList& list, uint32_t flags, const char* what) {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count);
  HEARTH_RETURN_IF_ERROR(CheckList(list, layout_.entries_max(), layer, what));
  size_t at = 1;
  for (const ExpertFfnItem& item : list.items) {
    const uint64_t address = reinterpret_cast<uintptr_t>(item.blob);
    Post(words[at++], sequence_, PackItemLow(address));
    Post(words[at++], sequence_, PackItemHigh(address, item.entry_begin, item.entry_count));
  }
  for (const ExpertFfnEntry& entry : list.entries) Post(words[at++], sequence_, PackEntry(entry));
  Post(words[0], sequence_,
       PackHeader({.item_count = static_cast<uint32_t>(list.items.size()),
                   .entry_count = static_cast<uint32_t>(list.entries.size()),
                   .flags = flags}));
  return absl::OkStatus();
}

absl::Status ExchangeHost::PostHits(LayerId layer, const ExpertList& list,
                                    const ExchangeFollows& follows) {
  const uint32_t flags =
      (follows.late ? kListLateFollows : 0u) | (follows.outputs ? kListOutputsFollow : 0u);
  return PostList(
      layer,
      Words(layout_.LayerOffsetBytes(layer.value) + layout_.hits_offset_bytes, layout_.list_words),
      list, flags, "experts in VRAM");
}

absl::Status ExchangeHost::PostLate(LayerId layer, const ExpertList& list) {
  return PostList(
      layer,
      Words(layout_.LayerOffsetBytes(layer.value) + layout_.late_offset_bytes, layout_.list_words),
      list, 0, "uploaded experts");
}

std::span<float> ExchangeHost::output(LayerId layer) const {
  return {reinterpret_cast<float*>(memory_.data() + layout_.SetOffsetBytes(layer.value) +
                                   layout_.output_offset_bytes),
          size_t{layout_.entries_max()} * layout_.shape.hidden};
}

void ExchangeHost::PostOutputs(LayerId layer) {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count);
  Post(Words(layout_.LayerOffsetBytes(layer.value) + layout_.outputs_offset_bytes, 1)[0], sequence_,
       0);
}

void ExchangeHost::Abort() {
  const uint32_t aborted = PackHeader({.flags = kListAborted});
  for (uint32_t layer = 0; layer < layout_.shape.layer_count; ++layer) {
    const uint64_t at = layout_.LayerOffsetBytes(layer);
    for (const uint64_t offset_bytes :
         {layout_.hits_offset_bytes, layout_.late_offset_bytes, layout_.outputs_offset_bytes}) {
      Post(Words(at + offset_bytes, 1)[0], sequence_, aborted);
    }
  }
}

absl::Status ExchangeHost::CardError() const {
  const uint64_t word = Load(Words(layout_.error_offset_bytes, 1)[0]);
  if (TagOf(word) != sequence_ || PayloadOf(word) == 0) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("layer ", PayloadOf(word) & 0xFFFFu, ": the GPU has waited in vain for ",
                   NameOf(PayloadOf(word) >> 16), " of window ", sequence_));
}

std::array<uint64_t, kExchangeStamps> ExchangeHost::Stamps(uint32_t sequence, LayerId layer) const {
  HEARTH_CHECK(layer.value < layout_.shape.layer_count);
  std::array<uint64_t, kExchangeStamps> stamps;
  std::ranges::copy(Words(layout_.StampsOffsetBytes(sequence, layer.value), kExchangeStamps),
                    stamps.begin());
  return stamps;
}

uint64_t ExchangeHost::Stamp(uint32_t sequence, WindowStamp stamp) const {
  return Words(layout_.WindowStampsOffsetBytes(sequence),
               kExchangeStamps)[static_cast<size_t>(stamp)];
}

}  // namespace hearth
