#include "runtime/engine/head_rows.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

HeadRows::HeadRows(ModelRunner& runner, uint32_t rows_max)
    : runner_(runner), rows_max_(rows_max), largest_max_(runner.top_logits_max()) {
  const size_t vocab = runner.geometry().vocab_count;
  logits_ = runner.logits_buffer();
  if (logits_.size() < (rows_max + 1) * vocab) {
    logits_memory_.resize((rows_max + 1) * vocab);
    logits_ = logits_memory_;
  }
  draft_logits_ = logits_.subspan(rows_max * vocab, vocab);
  logits_ = logits_.first(rows_max * vocab);
  largest_.resize(size_t{rows_max} * largest_max_);
  rows_.reserve(rows_max);
  largest_rows_.reserve(rows_max);
  asks_.reserve(rows_max);
}

absl::Status HeadRows::Read(std::span<const HeadAsk> asks) {
  rows_.clear();
  largest_rows_.clear();
  asks_.clear();
  used_rows_ = 0;
  for (size_t first = 0; first < asks.size();) {
    uint32_t row_count = 0;
    size_t end = first;
    while (end < asks.size() && asks[end].begin == asks[first].begin + row_count &&
           (asks[end].largest_needed == 0) == (asks[first].largest_needed == 0)) {
      row_count += asks[end++].count;
    }
    HEARTH_RETURN_IF_ERROR(ReadRun(asks.subspan(first, end - first), row_count));
    first = end;
  }
  return absl::OkStatus();
}

// All rows the same way: those of `asks` follow each other.
absl::Status HeadRows::ReadRun(std::span<const HeadAsk> asks, uint32_t row_count) {
  HEARTH_CHECK(used_rows_ + row_count <= rows_max_);
  const uint32_t begin = asks[0].begin, at = used_rows_;
  used_rows_ += row_count;
  uint32_t largest = 0;
  for (const HeadAsk& ask : asks) largest = std::max(largest, ask.largest_needed);
  HEARTH_CHECK(largest <= largest_max_);
  bool exact = false;
  const std::span<TopLogit> top = std::span(largest_).subspan(size_t{at} * largest_max_);
  if (largest != 0) {
    HEARTH_ASSIGN_OR_RETURN(
        exact, runner_.HeadTop(begin, row_count, largest, top.first(size_t{row_count} * largest)));
  }
  const size_t vocab = runner_.geometry().vocab_count;
  const std::span<float> logits = logits_.subspan(at * vocab, row_count * vocab);
  if (!exact) HEARTH_RETURN_IF_ERROR(runner_.Head(begin, row_count, logits));
  uint32_t row = 0;
  for (const HeadAsk& ask : asks) {
    const size_t first = exact ? largest_rows_.size() : rows_.size();
    asks_.push_back({.first = static_cast<uint32_t>(first), .count = ask.count, .all = !exact});
    for (uint32_t i = 0; i < ask.count; ++i, ++row) {
      if (exact) {
        largest_rows_.push_back(top.subspan(size_t{row} * largest, ask.largest_needed));
      } else {
        rows_.push_back(logits.subspan(row * vocab, vocab));
      }
    }
  }
  return absl::OkStatus();
}

std::span<const std::span<const float>> HeadRows::logits(size_t ask) const {
  const AskRows& rows = asks_[ask];
  return rows.all ? std::span(rows_).subspan(rows.first, rows.count)
                  : std::span<const std::span<const float>>();
}

std::span<const std::span<const TopLogit>> HeadRows::largest(size_t ask) const {
  const AskRows& rows = asks_[ask];
  return rows.all ? std::span<const std::span<const TopLogit>>()
                  : std::span(largest_rows_).subspan(rows.first, rows.count);
}

absl::StatusOr<TokenId> HeadRows::DraftChoice(uint32_t row) {
  if (largest_max_ != 0) {
    TopLogit best;
    HEARTH_ASSIGN_OR_RETURN(const bool exact, runner_.HeadTop(row, 1, 1, {&best, 1}));
    if (exact) return best.token;
  }
  HEARTH_RETURN_IF_ERROR(runner_.Head(row, 1, draft_logits_));
  return static_cast<TokenId>(std::max_element(draft_logits_.begin(), draft_logits_.end()) -
                              draft_logits_.begin());
}

}  // namespace hearth
