#include "cache/store/blob_reads.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Blobs are not split into requests smaller than this: they would cost more than they hide.
constexpr uint64_t kRequestBytesMin = 64_KiB;
// Blocks are multiples of it, and every drive is content with it.
constexpr uint64_t kPageBytes = 4_KiB;

}  // namespace

BlobReads::BlobReads(Reader& reader, Clock& clock, const BlobReadLimits& limits)
    : reader_(&reader),
      clock_(clock),
      limits_(limits),
      align_bytes_(std::max(reader.traits().align_bytes, kPageBytes)),
      reads_(limits.blobs_in_flight_max),
      completions_(size_t{limits.blobs_in_flight_max} * limits.requests_per_blob) {
  waiting_.reserve(completions_.size());
  ended_.reserve(reads_.size());
  given_up_.reserve(reads_.size());
}

void BlobReads::ChangeReader(Reader& reader) {
  HEARTH_CHECK(blob_count_ == 0);
  reader_ = &reader;
  align_bytes_ = std::max(reader.traits().align_bytes, kPageBytes);
}

void BlobReads::Add(BlockId block, uint64_t offset_bytes, std::span<std::byte> into) {
  const auto it = std::find_if(reads_.begin(), reads_.end(),
                               [](const Read& read) { return read.requests_left == 0; });
  HEARTH_CHECK(it != reads_.end());
  const int64_t now_ns = clock_.NowNs();
  if (blob_count_++ == 0) busy_since_ns_ = now_ns;
  *it = Read{.block = block, .late_ns = now_ns + limits_.timeout_ns, .status = absl::OkStatus()};
  const uint64_t count =
      std::clamp<uint64_t>(into.size() / kRequestBytesMin, 1, limits_.requests_per_blob);
  const uint64_t step_bytes = AlignUp((into.size() + count - 1) / count, align_bytes_);
  for (uint64_t at = 0; at < into.size(); at += step_bytes) {
    const uint64_t bytes = std::min<uint64_t>(step_bytes, into.size() - at);
    waiting_.push_back(
        {offset_bytes + at, into.subspan(at, bytes), static_cast<uint64_t>(it - reads_.begin())});
    ++it->requests_left;
  }
}

void BlobReads::Submit() {
  if (waiting_.empty()) return;
  const absl::StatusOr<size_t> taken = reader_->Submit(waiting_);
  if (taken.ok()) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(*taken));
    return;
  }
  for (const ReadRequest& request : waiting_) EndRequest(request.tag, taken.status());
  waiting_.clear();
}

absl::Status BlobReads::Wait(int64_t timeout_ns) {
  const absl::StatusOr<size_t> count = reader_->Wait(completions_, timeout_ns);
  if (!count.ok()) return count.status();
  for (size_t i = 0; i < *count; ++i) EndRequest(completions_[i].tag, completions_[i].status);
  return absl::OkStatus();
}

void BlobReads::EndRequest(uint64_t tag, const absl::Status& status) {
  HEARTH_CHECK(tag < reads_.size() && reads_[tag].requests_left > 0);
  Read& read = reads_[tag];
  if (!status.ok() && read.status.ok()) read.status = status;
  if (--read.requests_left > 0) return;
  ended_.push_back({read.block, std::move(read.status), read.given_up});
  if (--blob_count_ == 0) busy_ns_ += clock_.NowNs() - busy_since_ns_;
}

std::span<const BlobReads::GivenUp> BlobReads::GiveUpLate() {
  const int64_t now_ns = clock_.NowNs();
  if (next_late_ns() > now_ns) return {};
  return GiveUp(now_ns,
                absl::DeadlineExceededError(absl::StrCat("the drive has not answered for ",
                                                         limits_.timeout_ns / 1'000'000, " ms")));
}

std::span<const BlobReads::GivenUp> BlobReads::GiveUpAll(const absl::Status& why) {
  return GiveUp(INT64_MAX, why);
}

std::span<const BlobReads::GivenUp> BlobReads::GiveUp(int64_t late_before_ns,
                                                      const absl::Status& why) {
  given_up_.clear();
  for (size_t i = 0; i < reads_.size(); ++i) {
    Read& read = reads_[i];
    if (read.requests_left == 0 || read.given_up || read.late_ns > late_before_ns) continue;
    read.given_up = true;
    given_up_.push_back({read.block, read.status.ok() ? why : read.status});
    DropWaiting(i);
  }
  return given_up_;
}

// What the reader has not taken yet need not be read any more.
void BlobReads::DropWaiting(uint64_t tag) {
  const auto is_its = [tag](const ReadRequest& request) { return request.tag == tag; };
  const auto dropped = std::count_if(waiting_.begin(), waiting_.end(), is_its);
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_its), waiting_.end());
  for (ptrdiff_t i = 0; i < dropped; ++i) EndRequest(tag, absl::CancelledError("not read"));
}

int64_t BlobReads::next_late_ns() const {
  int64_t next_ns = INT64_MAX;
  for (const Read& read : reads_) {
    if (read.requests_left > 0 && !read.given_up) next_ns = std::min(next_ns, read.late_ns);
  }
  return next_ns;
}

}  // namespace hearth
