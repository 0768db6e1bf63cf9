#include "cache/io/step_down_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

// After a refusal: hands what the ring will not read to the successor.
absl::Status StepDownReader::StepDown() {
  if (uring_->refusal().ok()) return absl::OkStatus();
  if (successor_ == nullptr) {
    std::unique_ptr<Reader> successor = make_successor_(uring_->refusal());
    const std::lock_guard lock(mutex_);
    successor_ = std::move(successor);
  }
  const std::vector<ReadRequest> unread = uring_->TakeUnread();
  if (unread.empty()) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const size_t taken_count, successor_->Submit(unread));
  HEARTH_CHECK(taken_count == unread.size());  // both have room for the same number
  return absl::OkStatus();
}

absl::StatusOr<size_t> StepDownReader::Submit(std::span<const ReadRequest> requests) {
  if (successor_ != nullptr) {
    const size_t room_count = traits().in_flight_max - in_flight();
    return successor_->Submit(requests.first(std::min(requests.size(), room_count)));
  }
  const absl::StatusOr<size_t> taken_count = uring_->Submit(requests);
  HEARTH_RETURN_IF_ERROR(StepDown());
  return taken_count;
}

absl::StatusOr<size_t> StepDownReader::Wait(std::span<ReadCompletion> out, int64_t timeout_ns) {
  if (successor_ == nullptr || uring_->in_flight() > 0) {
    const absl::StatusOr<size_t> n = uring_->Wait(out, timeout_ns);
    HEARTH_RETURN_IF_ERROR(StepDown());
    if (n.ok() || uring_->refusal().ok()) return n;
    HEARTH_CHECK(uring_->in_flight() == 0);  // nothing is left to land there
  }
  return successor_->Wait(out, timeout_ns);
}

void StepDownReader::Wake() {
  const std::lock_guard lock(mutex_);
  uring_->Wake();
  if (successor_ != nullptr) successor_->Wake();
}

uint32_t StepDownReader::in_flight() const {
  return uring_->in_flight() + (successor_ == nullptr ? 0 : successor_->in_flight());
}

const ReaderTraits& StepDownReader::traits() const {
  return successor_ == nullptr ? uring_->traits() : successor_->traits();
}

}  // namespace hearth
