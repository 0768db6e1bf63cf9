// How far one sequence has come, in numbers: committed rows, the open pass, rows whose delta-rule
// update is still to be applied, and drafts. What the kernels are told follows from it; nothing
// here touches a card.
//
// The delta-rule states lag behind by the rows of the last window that were kept: the next pass
// applies them first, then reads its own rows on top. A window writes its rows into the set of
// pending rows that it does not read; a commit says how many of them count. A prompt pass applies
// all of its rows and leaves none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "runtime/backend/backend.h"
#include "runtime/base/ids.h"

namespace hearth {

class SequenceRows {
 public:
  explicit SequenceRows(uint32_t context_tokens_max) : context_tokens_max_(context_tokens_max) {
    tokens_.reserve(context_tokens_max);
  }

  uint32_t context_tokens_max() const { return context_tokens_max_; }
  uint32_t token_count() const { return token_count_; }
  uint32_t draft_count() const { return draft_count_; }
  uint32_t draft_position() const { return draft_position_; }
  // Committed tokens, then those of the open pass.
  std::span<const TokenId> tokens() const { return tokens_; }
  uint32_t pass_rows() const { return pass_rows_; }
  uint32_t pending_rows() const { return pending_rows_; }
  uint32_t parity() const { return parity_; }

  // FailedPrecondition while a pass is open or after a lost one, ResourceExhausted when the context
  // has no room.
  absl::Status BeginPass(std::span<const TokenId> tokens, Phase phase);
  // The open pass has begun to change states: unless it also ends, they are lost.
  void StartPass() { started_ = true; }
  // All layers of the open pass have run.
  void FinishPass();
  // FailedPrecondition without an open pass or for rows of one that did not finish, InvalidArgument
  // for more rows than it has or for part of a prompt. A pass that did not finish may be dropped
  // with 0 rows; where it was to apply rows to delta-rule states, these are lost with it.
  absl::Status CommitPass(uint32_t row_count);

  bool pass_open() const { return open_; }
  bool lost() const { return lost_; }
  // Whether rows of a window were ever committed.
  bool has_windows() const { return has_windows_; }
  // Of a sequence that has read nothing: it has read `tokens` in prompt passes now.
  void Restore(std::span<const TokenId> tokens, uint32_t draft_count);
  // Its states are of no more use.
  void Lose() { lost_ = true; }

  // Whether the trunk's hidden state of `position` is at hand: rows of the last finished pass and
  // the row before it.
  bool HasHidden(uint32_t position) const {
    return position >= hidden_begin_ && position < hidden_end_;
  }

  // A draft pass of `rows` rows from `position` on has run.
  void BeginDraftPass(uint32_t position, uint32_t rows) { draft_position_ = position + rows; }
  void CommitDraftPass() { draft_count_ = draft_position_; }

 private:
  uint32_t context_tokens_max_;
  uint32_t token_count_ = 0;
  uint32_t draft_count_ = 0;
  uint32_t draft_position_ = 0;
  uint32_t pass_rows_ = 0;
  uint32_t pending_rows_ = 0;
  uint32_t parity_ = 0;
  uint32_t hidden_begin_ = 0;  // positions whose hidden states are at hand
  uint32_t hidden_end_ = 0;
  Phase phase_ = Phase::kWindow;
  bool open_ = false;
  bool started_ = false;
  bool finished_ = false;
  bool lost_ = false;
  bool has_windows_ = false;
  std::vector<TokenId> tokens_;
};

}  // namespace hearth
