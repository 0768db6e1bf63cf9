#include "runtime/engine/window_batch.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/engine/generation.h"

namespace hearth {
namespace {

void AddTo(RequestCounts& sum, const RequestCounts& counts) {
  for (size_t s = 0; s < sum.services.size(); ++s) {
    sum.services[s].distinct += counts.services[s].distinct;
    sum.services[s].entries += counts.services[s].entries;
  }
}

}  // namespace

WindowBatch::WindowBatch(ModelRunner& runner, Clock& clock)
    : runner_(runner),
      clock_(clock),
      rows_max_(runner.options().limits.window_rows_max),
      heads_(runner, rows_max_) {
  taking_part_.reserve(rows_max_);
  segments_.reserve(rows_max_);
  served_.reserve(rows_max_);
  asks_.reserve(rows_max_);
}

WindowBatch::~WindowBatch() = default;

void WindowBatch::Run(std::span<WindowShare> shares) {
  const int64_t start_ns = clock_.NowNs(), choose_before_ns = times_.choose_ns;
  const uint64_t bytes_before = runner_.bytes_read().total();
  uint64_t rows_asked = 0;
  for (WindowShare& share : shares) rows_asked += 1 + share.drafts_max;
  HEARTH_CHECK(rows_asked <= rows_max_);
  DraftAll(shares);
  const size_t count = taking_part_.size();
  last_rows_ = 0;
  for (const WindowShare* share : taking_part_) {
    last_rows_ += static_cast<uint32_t>(share->generation->WindowTokens().size());
  }
  const absl::Status together = count == 0 ? absl::OkStatus() : RunPass(0, count);
  if (!together.ok()) {
    Abandon(0, count);
    for (size_t i = 0; i < count; ++i) {
      // One whose state the failed pass has lost, or who was alone in it, fails as the pass did.
      const absl::Status alone = count == 1 ? together : RunPass(i, i + 1);
      if (alone.ok()) continue;
      if (count > 1) Abandon(i, i + 1);
      taking_part_[i]->status =
          alone.code() == absl::StatusCode::kFailedPrecondition ? together : alone;
    }
  }
  const int64_t all_ns = clock_.NowNs() - start_ns;
  times_.pass_ns += all_ns - (times_.choose_ns - choose_before_ns);
  const uint64_t bytes = runner_.bytes_read().total() - bytes_before;
  for (size_t i = 0; i < count; ++i) {
    GenerationStats& stats = taking_part_[i]->generation->stats_;
    ++stats.windows;
    stats.decode_ns += all_ns;
    stats.decode_bytes += bytes / count + (i < bytes % count ? 1 : 0);
  }
}

void WindowBatch::DraftAll(std::span<WindowShare> shares) {
  taking_part_.clear();
  for (WindowShare& share : shares) {
    Generation& generation = *share.generation;
    HEARTH_CHECK(&generation.batch_ == this && generation.prompt_read() && !generation.finished());
    if (!share.keeps_drafting) generation.drafting_ = false;
    share.status = generation.Draft(share.drafts_max);
    if (share.status.ok()) taking_part_.push_back(&share);
  }
}

absl::Status WindowBatch::RunPass(size_t begin, size_t end) {
  segments_.clear();
  asks_.clear();
  uint32_t row = 0;
  for (size_t i = begin; i < end; ++i) {
    Generation& generation = *taking_part_[i]->generation;
    const std::span<const TokenId> tokens = generation.WindowTokens();
    segments_.push_back({.sequence = generation.sequence_.get(), .tokens = tokens});
    asks_.push_back({.begin = row,
                     .count = static_cast<uint32_t>(tokens.size()),
                     .largest_needed = generation.largest_needed()});
    row += asks_.back().count;
  }
  served_.assign(segments_.size(), {});
  HEARTH_RETURN_IF_ERROR(runner_.RunTrunk(segments_, Phase::kWindow, served_));
  HEARTH_RETURN_IF_ERROR(heads_.Read(asks_));
  AcceptAll(begin, end);
  return absl::OkStatus();
}

void WindowBatch::AcceptAll(size_t begin, size_t end) {
  const int64_t start_ns = clock_.NowNs();
  int64_t commit_ns = 0;
  for (size_t i = begin; i < end; ++i) {
    WindowShare& share = *taking_part_[i];
    Generation& generation = *share.generation;
    const absl::StatusOr<Acceptance> accepted = generation.Accept(heads_, i - begin);
    const uint32_t rows_kept = accepted.ok() ? accepted->commit_row_count : 0;
    const int64_t commit_start_ns = clock_.NowNs();
    const absl::Status committed = runner_.Commit(*generation.sequence_, rows_kept);
    commit_ns += clock_.NowNs() - commit_start_ns;
    share.status = accepted.ok() ? committed : accepted.status();
    if (!share.status.ok()) continue;
    AddTo(generation.stats_.served, served_[i - begin]);
    generation.CountDrafts(rows_kept);
  }
  times_.choose_ns += clock_.NowNs() - start_ns - commit_ns;
}

void WindowBatch::Abandon(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    // What cannot be closed refuses the next pass by itself.
    (void)runner_.Commit(*taking_part_[i]->generation->sequence_, 0);
  }
}

}  // namespace hearth
