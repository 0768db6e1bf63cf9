#include "runtime/backend/cuda/sequence_rows.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {

absl::Status SequenceRows::BeginPass(std::span<const TokenId> tokens, Phase phase) {
  if (open_) return absl::FailedPreconditionError("the last pass was not committed");
  if (lost_) {
    return absl::FailedPreconditionError(
        "a pass over this sequence failed half way and its state is lost: read it in again");
  }
  if (tokens.size() > context_tokens_max_ - token_count_) {
    return absl::ResourceExhaustedError(absl::StrCat("context of ", context_tokens_max_,
                                                     " tokens: ", token_count_, " in use, ",
                                                     tokens.size(), " more asked for"));
  }
  tokens_.resize(token_count_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  pass_rows_ = static_cast<uint32_t>(tokens.size());
  hidden_begin_ = token_count_ == 0 ? 0 : token_count_ - 1;
  hidden_end_ = token_count_;
  phase_ = phase;
  open_ = true;
  started_ = false;
  finished_ = false;
  return absl::OkStatus();
}

void SequenceRows::FinishPass() {
  finished_ = true;
  hidden_end_ = token_count_ + pass_rows_;
}

absl::Status SequenceRows::CommitPass(uint32_t row_count) {
  if (!open_) return absl::FailedPreconditionError("no pass is open");
  if (!finished_) {
    if (row_count != 0) {
      return absl::FailedPreconditionError(
          "the pass did not reach the last layer: only 0 rows of it can be committed");
    }
    lost_ = started_ && (phase_ == Phase::kPrompt || pending_rows_ != 0);
    open_ = false;
    tokens_.resize(token_count_);
    return absl::OkStatus();
  }
  if (row_count > pass_rows_ || (phase_ == Phase::kPrompt && row_count != pass_rows_)) {
    return absl::InvalidArgumentError(absl::StrCat("commit of ", row_count, " rows of a ",
                                                   phase_ == Phase::kPrompt ? "prompt" : "window",
                                                   " pass of ", pass_rows_));
  }
  token_count_ += row_count;
  tokens_.resize(token_count_);
  open_ = false;
  if (phase_ == Phase::kPrompt) {
    pending_rows_ = 0;
  } else {
    pending_rows_ = row_count;
    parity_ ^= 1;
    has_windows_ |= row_count != 0;
  }
  return absl::OkStatus();
}

void SequenceRows::Restore(std::span<const TokenId> tokens, uint32_t draft_count) {
  HEARTH_CHECK(token_count_ == 0 && !open_ && tokens.size() <= context_tokens_max_);
  tokens_.assign(tokens.begin(), tokens.end());
  token_count_ = static_cast<uint32_t>(tokens.size());
  draft_count_ = draft_count;
  draft_position_ = draft_count;
  hidden_begin_ = token_count_ - 1;
  hidden_end_ = token_count_;
}

}  // namespace hearth
