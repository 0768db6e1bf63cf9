#include "cache/io/counting_reader.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hearth {

CountingReader::CountingReader(std::unique_ptr<Reader> inner, Clock& clock)
    : inner_(std::move(inner)), clock_(clock) {
  HEARTH_CHECK(inner_->in_flight() == 0);
  const uint32_t slot_count = inner_->traits().in_flight_max;
  sent_.resize(slot_count);
  for (uint32_t i = slot_count; i > 0; --i) free_slots_.push_back(i - 1);
  tagged_.reserve(slot_count);
}

absl::StatusOr<size_t> CountingReader::Submit(std::span<const ReadRequest> requests) {
  tagged_.clear();
  const size_t room_count = std::min(requests.size(), free_slots_.size());
  for (size_t i = 0; i < room_count; ++i) {
    const uint32_t slot = free_slots_[free_slots_.size() - 1 - i];
    sent_[slot] = {.tag = requests[i].tag, .bytes = requests[i].into.size()};
    tagged_.push_back(requests[i]);
    tagged_.back().tag = slot;
  }
  const int64_t now_ns = clock_.NowNs();
  const absl::StatusOr<size_t> taken_count = inner_->Submit(tagged_);
  if (!taken_count.ok() || *taken_count == 0) return taken_count;
  free_slots_.resize(free_slots_.size() - *taken_count);
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_busy_, true)) busy_since_ns_ = now_ns;
  return taken_count;
}

absl::StatusOr<size_t> CountingReader::Wait(std::span<ReadCompletion> out, int64_t timeout_ns) {
  const absl::StatusOr<size_t> n = inner_->Wait(out, timeout_ns);
  if (!n.ok() || *n == 0) return n;
  const std::lock_guard lock(mutex_);
  for (ReadCompletion& read : out.first(*n)) {
    const auto slot = static_cast<uint32_t>(read.tag);
    read.tag = sent_[slot].tag;
    if (read.status.ok()) {
      ++counts_.read_count;
      counts_.read_bytes += sent_[slot].bytes;
    } else {
      ++counts_.failed_count;
    }
    free_slots_.push_back(slot);
  }
  if (inner_->in_flight() == 0 && std::exchange(is_busy_, false)) {
    counts_.busy_ns += clock_.NowNs() - busy_since_ns_;
  }
  return n;
}

ReadCounts CountingReader::counts() const {
  const std::lock_guard lock(mutex_);
  ReadCounts counts = counts_;
  if (is_busy_) counts.busy_ns += clock_.NowNs() - busy_since_ns_;
  return counts;
}

}  // namespace hearth
