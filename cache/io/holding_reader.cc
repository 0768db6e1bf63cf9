#include "cache/io/holding_reader.h"

#include <algorithm>
#include <utility>

#include "cache/io/wait_signal.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

HoldingReader::HoldingReader(std::unique_ptr<Reader> inner, uint32_t in_flight_max,
                             uint32_t landed_min, Clock& clock)
    : inner_(std::move(inner)), clock_(clock), landed_min_(landed_min) {
  HEARTH_CHECK(inner_->in_flight() == 0);
  const uint32_t inner_max = inner_->traits().in_flight_max;
  const uint32_t slot_count = in_flight_max == 0 ? inner_max : std::min(in_flight_max, inner_max);
  slots_.resize(slot_count);
  gathered_.resize(slot_count);
}

const ReaderTraits& HoldingReader::traits() const {
  traits_ = inner_->traits();
  traits_.in_flight_max = static_cast<uint32_t>(slots_.size());
  return traits_;
}

// Asks the inner reader for the next part of a read.
absl::Status HoldingReader::Ask(uint32_t slot_index) {
  Slot& slot = slots_[slot_index];
  const ReadRequest& whole = slot.held.request;
  std::span<std::byte> into = whole.into.subspan(slot.asked_bytes);
  if (slot.asked_bytes == 0 && slot.held.part_bytes > 0) {
    into = into.first(std::min<uint64_t>(into.size(), slot.held.part_bytes));
  }
  const ReadRequest part = {
      .offset_bytes = whole.offset_bytes + slot.asked_bytes, .into = into, .tag = slot_index};
  slot.asked_bytes += into.size();
  HEARTH_ASSIGN_OR_RETURN(const size_t taken_count, inner_->Submit({&part, 1}));
  HEARTH_CHECK(taken_count == 1);  // there is room: each of our reads has one of the inner's
  return absl::OkStatus();
}

absl::StatusOr<size_t> HoldingReader::Submit(std::span<const ReadRequest> requests) {
  size_t taken_count = 0;
  for (uint32_t i = 0; i < slots_.size() && taken_count < requests.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != SlotState::kFree) continue;
    slot.held = {.request = requests[taken_count],
                 .submitted_ns = clock_.NowNs(),
                 .number = submitted_count_++};
    slot.asked_bytes = 0;
    Plan(slot.held);
    slot.state = SlotState::kReading;
    ++in_flight_;
    ++taken_count;
    if (slot.held.status.ok()) {
      HEARTH_RETURN_IF_ERROR(Ask(i));
    } else {
      slot.state = SlotState::kLanded;
      ++landed_count_;
    }
  }
  return taken_count;
}

// Takes what the inner reader has ready; how many of its reads ended.
absl::StatusOr<size_t> HoldingReader::Gather(int64_t timeout_ns) {
  HEARTH_ASSIGN_OR_RETURN(const size_t n, inner_->Wait(gathered_, timeout_ns));
  for (ReadCompletion& read : std::span(gathered_).first(n)) {
    const auto slot_index = static_cast<uint32_t>(read.tag);
    Slot& slot = slots_[slot_index];
    if (read.status.ok() && slot.asked_bytes < slot.held.request.into.size()) {
      HEARTH_RETURN_IF_ERROR(Ask(slot_index));
      continue;
    }
    slot.held.status = std::move(read.status);
    if (slot.held.status.ok()) OnLanded(slot.held);
    slot.state = SlotState::kLanded;
    ++landed_count_;
  }
  return n;
}

int64_t HoldingReader::NextDueNs() const {
  int64_t due_ns = INT64_MAX;
  for (const Slot& slot : slots_) {
    if (slot.state == SlotState::kLanded) due_ns = std::min(due_ns, slot.held.due_ns);
  }
  return due_ns;
}

size_t HoldingReader::Release(std::span<ReadCompletion> out) {
  size_t n = 0;
  const int64_t now_ns = clock_.NowNs();
  while (n < out.size() && in_flight_ > 0 && landed_count_ >= std::min(landed_min_, in_flight_)) {
    Slot* first = nullptr;
    for (Slot& slot : slots_) {
      if (slot.state != SlotState::kLanded || slot.held.due_ns > now_ns) continue;
      if (first == nullptr || slot.held.order_key < first->held.order_key) first = &slot;
    }
    if (first == nullptr) break;
    out[n++] = {.tag = first->held.request.tag,
                .status = std::move(first->held.status),
                .latency_ns = now_ns - first->held.submitted_ns};
    first->state = SlotState::kFree;
    --in_flight_;
    --landed_count_;
  }
  return n;
}

absl::StatusOr<size_t> HoldingReader::Wait(std::span<ReadCompletion> out, int64_t timeout_ns) {
  HEARTH_CHECK(!out.empty());
  int64_t left_ns = std::clamp<int64_t>(timeout_ns, 0, kSleepMaxNs);
  HEARTH_RETURN_IF_ERROR(Gather(0).status());
  while (true) {
    const size_t n = Release(out);
    const bool was_woken = woken_.exchange(false);
    if (n > 0 || was_woken || left_ns <= 0) return n;
    const int64_t before_ns = clock_.NowNs();
    // Held back for want of others: only those can change that.
    const bool is_enough = landed_count_ >= std::min(landed_min_, in_flight_);
    const int64_t due_in_ns = is_enough ? std::max<int64_t>(NextDueNs() - before_ns, 1) : left_ns;
    const int64_t slice_ns = std::min(left_ns, due_in_ns);
    HEARTH_ASSIGN_OR_RETURN(const size_t ended_count, Gather(slice_ns));
    const int64_t passed_ns = clock_.NowNs() - before_ns;
    // A clock that a test holds still: the inner reader has slept for the slice.
    const bool stood_still = ended_count == 0 && passed_ns == 0;
    left_ns -= stood_still ? slice_ns : passed_ns;
  }
}

void HoldingReader::Wake() {
  woken_ = true;
  inner_->Wake();
}

}  // namespace hearth
