#include "cache/io/uring_reader.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/io/process_limits.h"
#include "cache/io/wait_signal.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kWakeTag = UINT64_MAX;
// Calls in a row that the kernel interrupts or cannot serve before the reader gives up.
constexpr uint32_t kInterruptedMax = 1000;
constexpr int64_t kDrainSliceNs = 1'000'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<UringReader>> UringReader::Create(
    std::shared_ptr<DirectFile> file, const UringReaderOptions& options) {
  // Each request has at most one entry queued, and so has the wake descriptor.
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<UringRing> ring,
                          UringRing::Create({.entry_count = options.in_flight_max + 1,
                                             .fd = file->fd(),
                                             .buffers = options.buffers,
                                             .align_bytes = options.align_bytes}));
  UniqueFd wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.valid() && errno == EMFILE && RaiseDescriptorLimit()) {
    wake_fd = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  if (!wake_fd.valid()) {
    return errno == EMFILE ? DescriptorLimitError("eventfd") : ErrnoStatus(errno, "eventfd");
  }
  return std::unique_ptr<UringReader>(
      new UringReader(std::move(file), std::move(ring), std::move(wake_fd), options));
}

UringReader::UringReader(std::shared_ptr<DirectFile> file, std::unique_ptr<UringRing> ring,
                         UniqueFd wake_fd, const UringReaderOptions& options)
    : file_(std::move(file)),
      ring_(std::move(ring)),
      wake_fd_(std::move(wake_fd)),
      align_bytes_(options.align_bytes),
      attempt_bytes_max_(options.attempt_bytes_max),
      clock_(options.clock),
      on_completion_([this](uint64_t tag, int32_t result) { OnCompletion(tag, result); }),
      slots_(options.in_flight_max),
      finished_(options.in_flight_max) {
  traits_.kind = "uring";
  traits_.registered = ring_->registered();
  traits_.in_flight_max = options.in_flight_max;
  if (!ring_->note().empty()) {
    traits_.notes.push_back(absl::StrCat(file_->path(), ": ", ring_->note()));
  }
  DescribeDirect();
  free_slots_.reserve(slots_.size());
  for (uint32_t i = options.in_flight_max; i > 0; --i) free_slots_.push_back(i - 1);
  PushWakePoll();
}

UringReader::~UringReader() {
  // The kernel writes into the caller's memory until each read it has taken is complete; there is
  // no bound to give up at.
  while (HeldByKernel() > 0) {
    const UringRing::Outcome outcome =
        refusal_.ok() ? ring_->Wait(kDrainSliceNs) : UringRing::Outcome::kRefused;
    NoteRefusal(outcome);
    if (!refusal_.ok() || outcome == UringRing::Outcome::kFailed) ring_->WaitByPoll(kDrainSliceNs);
    ring_->Reap([this](uint64_t tag, int32_t) {
      if (tag != kWakeTag) slots_[tag].state = SlotState::kFree;
    });
  }
}

void UringReader::DescribeDirect() {
  traits_.direct = file_->direct();
  traits_.align_bytes = traits_.direct ? align_bytes_ : 1;
  if (std::string note = file_->Note(); !note.empty()) traits_.notes.push_back(std::move(note));
}

uint32_t UringReader::in_flight() const {
  return static_cast<uint32_t>(slots_.size() - free_slots_.size() + finished_.count());
}

uint32_t UringReader::HeldByKernel() const {
  const uint64_t taken_count = ring_->taken_count();
  return static_cast<uint32_t>(std::count_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.state == SlotState::kPushed && slot.push_number <= taken_count;
  }));
}

void UringReader::PushSlot(uint32_t slot_index) {
  Slot& slot = slots_[slot_index];
  if (!refusal_.ok()) {
    slot.state = SlotState::kUnread;
    return;
  }
  ring_->PushRead(slot_index, slot.progress.next_offset_bytes(), slot.progress.next_into());
  slot.state = SlotState::kPushed;
  slot.push_number = ring_->pushed_count();
}

void UringReader::PushWakePoll() { ring_->PushPoll(kWakeTag, wake_fd_.get()); }

void UringReader::Follow(uint32_t slot_index, ReadProgress::Next next) {
  Slot& slot = slots_[slot_index];
  if (next == ReadProgress::Next::kWithoutDirect) {
    file_->StopDirect();
    slot.progress.StopDirect();
    if (traits_.direct) DescribeDirect();
    next = ReadProgress::Next::kReadMore;
  }
  if (next == ReadProgress::Next::kReadMore) return PushSlot(slot_index);
  absl::Status status =
      next == ReadProgress::Next::kDone ? absl::OkStatus() : slot.progress.Error(file_->path());
  finished_.Push({.tag = slot.progress.request().tag,
                  .status = std::move(status),
                  .latency_ns = clock_.NowNs() - slot.submitted_ns});
  slot.state = SlotState::kFree;
  free_slots_.push_back(slot_index);
}

void UringReader::OnCompletion(uint64_t tag, int32_t result) {
  if (tag == kWakeTag) {
    uint64_t wakes = 0;
    while (::read(wake_fd_.get(), &wakes, sizeof(wakes)) < 0 && errno == EINTR) {
    }
    woken_ = true;
    if (refusal_.ok()) PushWakePoll();
    return;
  }
  const auto slot_index = static_cast<uint32_t>(tag);
  Follow(slot_index, slots_[slot_index].progress.Advance(result));
}

void UringReader::NoteRefusal(UringRing::Outcome outcome) {
  if (outcome != UringRing::Outcome::kRefused || !refusal_.ok()) return;
  refusal_ = UringRefusal(ring_->error_number());
  const uint64_t taken_count = ring_->taken_count();
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kPushed && slot.push_number > taken_count) {
      slot.state = SlotState::kUnread;
    }
  }
}

absl::StatusOr<size_t> UringReader::Submit(std::span<const ReadRequest> requests) {
  if (!refusal_.ok()) return refusal_;
  const size_t n = std::min<size_t>(requests.size(), traits_.in_flight_max - in_flight());
  const ReadBounds bounds = {.file_bytes = file_->bytes(),
                             .align_bytes = align_bytes_,
                             .direct = file_->direct(),
                             .attempt_bytes_max = attempt_bytes_max_};
  const int64_t now_ns = clock_.NowNs();
  for (const ReadRequest& request : requests.first(n)) {
    const uint32_t slot_index = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot_index].progress = ReadProgress(request, bounds);
    slots_[slot_index].submitted_ns = now_ns;
    Follow(slot_index, slots_[slot_index].progress.Begin());
  }
  // What the kernel cannot take now is handed over by the next Wait().
  const UringRing::Outcome outcome = ring_->Submit();
  if (outcome == UringRing::Outcome::kFailed) {
    return ErrnoStatus(ring_->error_number(), absl::StrCat(file_->path(), ": io_uring_enter"));
  }
  NoteRefusal(outcome);
  return n;
}

// One round: hands over what is queued, waits, and takes what has landed.
UringRing::Outcome UringReader::Enter(int64_t timeout_ns) {
  UringRing::Outcome outcome = UringRing::Outcome::kOk;
  if (refusal_.ok()) {
    outcome = ring_->Submit();
    if (outcome == UringRing::Outcome::kOk) outcome = ring_->Wait(timeout_ns);
    NoteRefusal(outcome);
  } else {
    outcome = ring_->WaitByPoll(timeout_ns);
  }
  ring_->Reap(on_completion_);
  return outcome;
}

absl::StatusOr<size_t> UringReader::Wait(std::span<ReadCompletion> out, int64_t timeout_ns) {
  HEARTH_CHECK(!out.empty());
  const int64_t deadline_ns = clock_.NowNs() + std::clamp<int64_t>(timeout_ns, 0, kSleepMaxNs);
  uint32_t interrupted_count = 0;
  ring_->Reap(on_completion_);
  while (finished_.count() == 0 && !woken_) {
    if (!refusal_.ok() && HeldByKernel() == 0) break;
    const UringRing::Outcome outcome = Enter(std::max<int64_t>(deadline_ns - clock_.NowNs(), 0));
    if (outcome == UringRing::Outcome::kInterrupted) ++interrupted_count;
    if (outcome == UringRing::Outcome::kFailed || interrupted_count >= kInterruptedMax) {
      return ErrnoStatus(ring_->error_number(), absl::StrCat(file_->path(), ": io_uring_enter"));
    }
    if (outcome == UringRing::Outcome::kTimeout || clock_.NowNs() >= deadline_ns) break;
  }
  if (refusal_.ok()) NoteRefusal(ring_->Submit());  // the rest of reads that came in pieces
  const bool was_woken = std::exchange(woken_, false);
  const size_t n = finished_.PopInto(out);
  if (n == 0 && !was_woken && !refusal_.ok() && HeldByKernel() == 0) return refusal_;
  return n;
}

void UringReader::Wake() {
  const uint64_t one = 1;
  while (::write(wake_fd_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

std::vector<ReadRequest> UringReader::TakeUnread() {
  std::vector<ReadRequest> unread;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != SlotState::kUnread) continue;
    unread.push_back(slots_[i].progress.request());
    slots_[i].state = SlotState::kFree;
    free_slots_.push_back(i);
  }
  return unread;
}

}  // namespace hearth
