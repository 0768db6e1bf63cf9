#include "runtime/experts/host_card.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

HostCard::HostCard(const Deps& deps, const HostCardOptions& options)
    : deps_(deps),
      options_(options),
      hidden_(deps.layouts[0].hidden),
      table_(deps.layouts.size() * deps.expert_count),
      next_table_(table_.size()),
      host_entries_(table_.size()),
      finder_(deps.expert_count, options.rows_max * options.ranks) {
  const size_t rows = options.rows_max;
  const size_t blocks = ActivationBlocks(hidden_);
  output_.resize(rows * options.ranks * hidden_);
  on_card_.resize(rows * options.ranks);
  plan_.Reserve(options.rows_max, options.ranks, deps.expert_count);
  weights_.resize(deps.expert_count);
  arrived_.resize(deps.expert_count);
  x_.resize(rows * hidden_);
  q_.resize(rows * blocks * kActivationBlockValues);
  scale_.resize(rows * blocks);
  sum16_.resize(rows * blocks * 2);
}

absl::StatusOr<std::unique_ptr<HostCard>> HostCard::Create(const Deps& deps,
                                                           const HostCardOptions& options) {
  std::unique_ptr<HostCard> card(new HostCard(deps, options));
  HEARTH_ASSIGN_OR_RETURN(
      card->pool_, ExpertPool::Create({.layouts = deps.layouts,
                                       .expert_count = deps.expert_count,
                                       .kernels = deps.kernels,
                                       .team = card->team_,
                                       .clock = deps.clock},
                                      {.rows_max = options.rows_max, .ranks = options.ranks}));
  card->thread_ = std::thread([c = card.get()] { c->CardMain(); });
  return card;
}

HostCard::~HostCard() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool HostCard::Computes(LayerId layer, const ExpertRows& rows) const {
  return rows.rows <= options_.rows_max && rows.quantized.q != nullptr &&
         !pool_->DecodesFirst(layer, rows);
}

ExpertRows HostCard::CopyRows(const ExpertRows& rows) {
  const size_t blocks = rows.rows * ActivationBlocks(hidden_);
  std::copy_n(rows.x, size_t{rows.rows} * hidden_, x_.begin());
  std::copy_n(rows.quantized.q, blocks * kActivationBlockValues, q_.begin());
  std::copy_n(rows.quantized.scale, blocks, scale_.begin());
  std::copy_n(rows.quantized.sum16, blocks * 2, sum16_.begin());
  return {.x = x_.data(),
          .quantized = {.q = q_.data(),
                        .scale = scale_.data(),
                        .sum16 = sum16_.data(),
                        .rows = rows.rows,
                        .cols = hidden_},
          .rows = rows.rows};
}

void HostCard::MarkEntries(const PlannedExpert& planned) {
  for (uint32_t i = 0; i < planned.entry_count; ++i) {
    const RouteEntry& entry = plan_.entries[planned.entry_begin + i];
    on_card_[size_t{entry.row} * options_.ranks + entry.rank] = 1;
  }
}

void HostCard::BeginWindow() {
  follows_ = true;
  table_ = next_table_;
  finder_.BeginWindow(rule_);
}

std::span<const EntryClaim> HostCard::Claims(LayerId layer, std::span<const uint32_t> expert) {
  claims_ = {};
  if (!follows_) return claims_;
  const size_t first = IndexOf({layer, ExpertId(0)});
  claims_ = finder_.Find(std::span(table_).subspan(first, deps_.expert_count), expert);
  return claims_;
}

void HostCard::SetSlot(ExpertKey key, SlotRef slot) {
  next_table_[IndexOf(key)] = slot.valid()
                                  ? reinterpret_cast<uintptr_t>(deps_.device.HostView(slot).data())
                                  : host_entries_[IndexOf(key)];
}

void HostCard::SetHostBytes(ExpertKey key, std::span<const std::byte> bytes) {
  host_entries_[IndexOf(key)] = reinterpret_cast<uintptr_t>(bytes.data()) | kFromAfar;
  SetSlot(key, SlotRef());
}

// By its own table, whatever the plan says.
void HostCard::TakeClaimed() {
  for (uint32_t i = 0; i < plan_.experts.size(); ++i) {
    const PlannedExpert& planned = plan_.experts[i];
    const RouteEntry& first = plan_.entries[planned.entry_begin];
    const EntryClaim claim = claims_[size_t{first.row} * options_.ranks + first.rank];
    if (claim == EntryClaim::kHost) {
      weights_[i] = {.elsewhere = planned.service != Service::kPcie};
      continue;
    }
    const uint64_t entry = table_[IndexOf({layer_, planned.expert})] & ~kFromAfar;
    weights_[i] = {.blob = reinterpret_cast<const std::byte*>(entry)};
    arrived_[i] = 1;
    MarkEntries(planned);
    if (claim == EntryClaim::kStreamed) ++streamed_count_;
  }
}

absl::Status HostCard::Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& rows,
                             std::span<const CardExpert> experts) {
  {
    const std::lock_guard lock(mutex_);
    HEARTH_CHECK(!has_work_);  // the layer before has been retired
  }
  layer_ = layer;
  plan_.experts = plan.experts;
  plan_.entries = plan.entries;
  std::ranges::fill(on_card_, uint8_t{0});
  streamed_count_ = 0;
  const size_t count = plan.experts.size();
  std::fill_n(arrived_.begin(), count, uint8_t{0});
  for (size_t i = 0; i < count; ++i) {
    weights_[i] = {.elsewhere = plan.experts[i].service != Service::kPcie};
  }
  if (!claims_.empty()) TakeClaimed();
  for (const CardExpert& expert : experts) {
    weights_[expert.index] = {.blob = deps_.device.HostView(expert.slot).data()};
    MarkEntries(plan_.experts[expert.index]);
  }
  pool_->Begin(layer, plan_, CopyRows(rows), std::span(weights_).first(count), output_, nullptr);
  const std::lock_guard lock(mutex_);
  has_work_ = true;
  changed_.notify_all();
  return absl::OkStatus();
}

void HostCard::Deliver(uint32_t index, const std::byte* blob) {
  arrived_[index] = 1;
  MarkEntries(plan_.experts[index]);
  pool_->Arrive(index, blob);
}

absl::Status HostCard::Stream(std::span<const StreamedExpert> experts) {
  streamed_count_ += static_cast<uint32_t>(experts.size());
  for (const StreamedExpert& expert : experts) Deliver(expert.index, expert.bytes.data());
  return absl::OkStatus();
}

void HostCard::Arrive(const CardExpert& expert) {
  Deliver(expert.index, deps_.device.HostView(expert.slot).data());
}

// Uploads that failed never arrive: the thread is told.
absl::Status HostCard::Finish() {
  for (uint32_t i = 0; i < plan_.experts.size(); ++i) {
    if (plan_.experts[i].service == Service::kPcie && arrived_[i] == 0) pool_->Arrive(i, nullptr);
  }
  return absl::OkStatus();
}

bool HostCard::AwaitIdle() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(options_.wait_ns),
                           [&] { return !has_work_; });
}

absl::StatusOr<CardTimes> HostCard::Retire() {
  if (!AwaitIdle()) {
    return absl::DeadlineExceededError(absl::StrCat("layer ", layer_.value, ": ", ToAbsl(name()),
                                                    " has not come to its end within ",
                                                    options_.wait_ns / 1'000'000, " ms"));
  }
  const std::lock_guard lock(mutex_);
  return CardTimes{.layer_ns = layer_ns_,
                   .stream_ns = streamed_count_ == 0 ? 0 : layer_ns_,
                   .streamed_count = streamed_count_};
}

void HostCard::CardMain() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return has_work_ || stopping_; });
    if (!has_work_) return;
    lock.unlock();
    if (options_.before_layer) options_.before_layer(layer_);
    const int64_t begin_ns = deps_.clock.NowNs();
    (void)pool_->Finish();
    const int64_t layer_ns = deps_.clock.NowNs() - begin_ns;
    lock.lock();
    layer_ns_ = layer_ns;
    has_work_ = false;
    changed_.notify_all();
  }
}

}  // namespace hearth
