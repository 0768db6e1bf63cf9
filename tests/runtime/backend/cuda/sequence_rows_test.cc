// The numbers of a sequence over prompts, windows, partial commits, drafts and failed passes.
#include "runtime/backend/cuda/sequence_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

absl::Status Pass(SequenceRows& rows, uint32_t count, Phase phase, uint32_t kept) {
  const std::vector<TokenId> tokens(count, 7);
  if (absl::Status status = rows.BeginPass(tokens, phase); !status.ok()) return status;
  rows.StartPass();
  rows.FinishPass();
  return rows.CommitPass(kept);
}

TEST(SequenceRows, PromptLeavesNothingPending) {
  SequenceRows rows(100);
  ASSERT_TRUE(Pass(rows, 40, Phase::kPrompt, 40).ok());
  EXPECT_EQ(rows.token_count(), 40u);
  EXPECT_EQ(rows.pending_rows(), 0u);
  EXPECT_EQ(rows.parity(), 0u);
}

TEST(SequenceRows, WindowsKeptRowsArePendingInTheSetThatItWrote) {
  SequenceRows rows(100);
  ASSERT_TRUE(Pass(rows, 10, Phase::kPrompt, 10).ok());
  ASSERT_TRUE(Pass(rows, 4, Phase::kWindow, 3).ok());
  EXPECT_EQ(rows.token_count(), 13u);
  EXPECT_EQ(rows.pending_rows(), 3u);
  EXPECT_EQ(rows.parity(), 1u) << "the window wrote set 1 - 0";
  ASSERT_TRUE(Pass(rows, 2, Phase::kWindow, 0).ok());
  EXPECT_EQ(rows.token_count(), 13u);
  EXPECT_EQ(rows.pending_rows(), 0u) << "the window applied the 3 rows; its own were dropped";
  EXPECT_EQ(rows.parity(), 0u);
  ASSERT_TRUE(Pass(rows, 2, Phase::kWindow, 2).ok());
  ASSERT_TRUE(Pass(rows, 5, Phase::kPrompt, 5).ok());
  EXPECT_EQ(rows.pending_rows(), 0u) << "a prompt applies what is pending, and its own rows";
  EXPECT_EQ(rows.token_count(), 20u);
}

TEST(SequenceRows, TokensOfDroppedRowsAreForgotten) {
  SequenceRows rows(100);
  const std::vector<TokenId> tokens = {1, 2, 3};
  ASSERT_TRUE(rows.BeginPass(tokens, Phase::kWindow).ok());
  EXPECT_EQ(rows.tokens().size(), 3u);
  rows.FinishPass();
  ASSERT_TRUE(rows.CommitPass(1).ok());
  ASSERT_EQ(rows.tokens().size(), 1u);
  EXPECT_EQ(rows.tokens()[0], 1);
}

TEST(SequenceRows, RefusesPassesOutOfTurn) {
  SequenceRows rows(8);
  EXPECT_EQ(rows.CommitPass(0).code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<TokenId> tokens = {1, 2, 3};
  ASSERT_TRUE(rows.BeginPass(tokens, Phase::kPrompt).ok());
  EXPECT_EQ(rows.BeginPass(tokens, Phase::kWindow).code(), absl::StatusCode::kFailedPrecondition);
  rows.StartPass();
  EXPECT_EQ(rows.CommitPass(3).code(), absl::StatusCode::kFailedPrecondition) << "not finished";
  rows.FinishPass();
  EXPECT_EQ(rows.CommitPass(2).code(), absl::StatusCode::kInvalidArgument) << "part of a prompt";
  EXPECT_EQ(rows.CommitPass(4).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(rows.CommitPass(3).ok());
  const std::vector<TokenId> many(6, 1);
  EXPECT_EQ(rows.BeginPass(many, Phase::kWindow).code(), absl::StatusCode::kResourceExhausted);
}

TEST(SequenceRows, PassThatWasNotStartedIsDroppedWithoutTrace) {
  SequenceRows rows(20);
  ASSERT_TRUE(Pass(rows, 4, Phase::kWindow, 4).ok());
  const std::vector<TokenId> tokens = {1, 2};
  ASSERT_TRUE(rows.BeginPass(tokens, Phase::kPrompt).ok());
  ASSERT_TRUE(rows.CommitPass(0).ok());
  EXPECT_EQ(rows.pending_rows(), 4u);
  EXPECT_EQ(rows.parity(), 1u);
  EXPECT_EQ(rows.tokens().size(), 4u);
  EXPECT_TRUE(rows.BeginPass(tokens, Phase::kWindow).ok());
}

TEST(SequenceRows, FailedPassLosesStatesThatItWasToAdvance) {
  const std::vector<TokenId> tokens = {1, 2};
  for (const Phase phase : {Phase::kPrompt, Phase::kWindow}) {
    for (const uint32_t pending : {0u, 1u}) {
      SequenceRows rows(20);
      ASSERT_TRUE(Pass(rows, 4, Phase::kWindow, pending).ok());
      ASSERT_TRUE(rows.BeginPass(tokens, phase).ok());
      rows.StartPass();
      ASSERT_TRUE(rows.CommitPass(0).ok());
      const bool lost = phase == Phase::kPrompt || pending != 0;
      const absl::Status again = rows.BeginPass(tokens, Phase::kWindow);
      EXPECT_EQ(again.ok(), !lost) << again;
      if (lost) {
        EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
      }
    }
  }
}

TEST(SequenceRows, HiddenStatesOfTheLastPassAndTheRowBeforeIt) {
  SequenceRows rows(100);
  EXPECT_FALSE(rows.HasHidden(0));
  ASSERT_TRUE(Pass(rows, 5, Phase::kPrompt, 5).ok());
  EXPECT_TRUE(rows.HasHidden(0));
  EXPECT_TRUE(rows.HasHidden(4));
  EXPECT_FALSE(rows.HasHidden(5));
  ASSERT_TRUE(Pass(rows, 3, Phase::kWindow, 2).ok());
  EXPECT_FALSE(rows.HasHidden(3));
  EXPECT_TRUE(rows.HasHidden(4));
  EXPECT_TRUE(rows.HasHidden(6));
  const std::vector<TokenId> tokens = {1};
  ASSERT_TRUE(rows.BeginPass(tokens, Phase::kWindow).ok());
  EXPECT_TRUE(rows.HasHidden(6));
  EXPECT_FALSE(rows.HasHidden(7)) << "the pass has not run";
}

TEST(SequenceRows, DraftsAdvanceOnlyWhenKept) {
  SequenceRows rows(100);
  rows.BeginDraftPass(0, 4);
  EXPECT_EQ(rows.draft_position(), 4u);
  EXPECT_EQ(rows.draft_count(), 0u);
  rows.CommitDraftPass();
  EXPECT_EQ(rows.draft_count(), 4u);
  rows.BeginDraftPass(rows.draft_position(), 1);  // chained, never kept
  EXPECT_EQ(rows.draft_position(), 5u);
  EXPECT_EQ(rows.draft_count(), 4u);
}

}  // namespace
}  // namespace hearth
