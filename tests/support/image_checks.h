// What every backend promises of its images, on a model that is loaded: a sequence that was
// restored goes on as the one that read everything, to the last bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine/model_runner.h"

namespace hearth {

// A sequence with all logits that its passes gave.
class FollowedSequence {
 public:
  FollowedSequence(ModelRunner& runner, uint32_t context, bool drafts)
      : runner_(runner), drafts_(drafts) {
    auto sequence = runner.CreateSequence(context);
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    if (sequence.ok()) sequence_ = *std::move(sequence);
  }
  Sequence& operator*() { return *sequence_; }
  Sequence* operator->() { return sequence_.get(); }

  // Keeps `keep` of the rows. Of prompts the MTP layer follows up to the row before the last, with
  // windows up to the last.
  void Read(std::span<const TokenId> all, uint32_t rows, uint32_t keep, Phase phase) {
    const uint32_t begin = sequence_->token_count();
    const Segment segment{.sequence = sequence_.get(), .tokens = all.subspan(begin, rows)};
    Expect(runner_.RunTrunk({&segment, 1}, phase));
    AddLogits(rows);
    Expect(runner_.Commit(*sequence_, keep));
    if (!drafts_) return;
    const uint32_t first = sequence_->draft_count();
    const uint32_t end = begin + keep - (phase == Phase::kPrompt ? 1 : 0);
    if (first >= end) return;
    Expect(runner_.RunDraft(*sequence_, all.subspan(first + 1, end - first),
                            Backend::DraftSource::kTrunk));
    AddLogits(end - first);
    Expect(runner_.CommitDraft(*sequence_));
    if (phase == Phase::kPrompt) return;
    Expect(runner_.RunDraft(*sequence_, all.subspan(end, 1), Backend::DraftSource::kChained));
    AddLogits(1);
  }
  std::vector<float> TakeLogits() { return std::exchange(logits_, {}); }

 private:
  void Expect(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }
  void AddLogits(uint32_t rows) {
    const uint32_t vocab = runner_.geometry().vocab_count;
    row_.resize(vocab);
    for (uint32_t row = 0; row < rows; ++row) {
      Expect(runner_.Head(row, 1, row_));
      logits_.insert(logits_.end(), row_.begin(), row_.end());
    }
  }

  ModelRunner& runner_;
  bool drafts_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<float> row_;
  std::vector<float> logits_;
};

struct SavedSpan {
  SpanRange range;
  std::vector<std::byte> bytes;
};
struct SavedImage {
  uint32_t token_count = 0;
  uint32_t draft_count = 0;
  std::vector<std::byte> fixed;
};

class ImageChecks {
 public:
  // `cuts` end with less than all tokens: windows read what is left, 20 tokens at least.
  ImageChecks(ModelRunner& runner, std::span<const TokenId> tokens, std::vector<uint32_t> cuts,
              bool drafts)
      : runner_(runner), tokens_(tokens), cuts_(std::move(cuts)), drafts_(drafts) {}

  void RestoredSequencesGoOnAsTheOneThatReadAll() {
    FollowedSequence whole(runner_, Context(), drafts_);
    for (const uint32_t cut : cuts_) {
      const uint32_t rows = cut - whole->token_count();
      whole.Read(tokens_, rows, rows, Phase::kPrompt);
      Save(*whole);
      logits_.push_back(whole.TakeLogits());
    }
    Decode(whole);
    const std::vector<float> decoded = whole.TakeLogits();
    for (size_t i = 0; i < images_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "image of " << images_[i].token_count << " tokens");
      FollowedSequence restored(runner_, Context(), drafts_);
      const absl::Status status = Restore(i, *restored);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(restored->token_count(), images_[i].token_count);
      EXPECT_EQ(restored->draft_count(), images_[i].draft_count);
      ExpectSameImage(i, *restored);
      for (size_t j = i + 1; j < cuts_.size(); ++j) {
        const uint32_t rows = cuts_[j] - cuts_[j - 1];
        restored.Read(tokens_, rows, rows, Phase::kPrompt);
        EXPECT_TRUE(restored.TakeLogits() == logits_[j]) << "pass up to " << cuts_[j];
        ExpectSameImage(j, *restored);
      }
      Decode(restored);
      EXPECT_TRUE(restored.TakeLogits() == decoded) << "windows";
    }
  }

  void WhatDoesNotFitIsRefused() {
    using absl::StatusCode;
    FollowedSequence s(runner_, Context(), drafts_);
    SequenceImager& imager = runner_.imager();
    std::vector<std::byte> fixed(imager.fixed_bytes());
    EXPECT_EQ(imager.SaveImage(*s, {}, fixed, {}).code(), StatusCode::kFailedPrecondition)
        << "nothing was read";
    s.Read(tokens_, cuts_[0], cuts_[0], Phase::kPrompt);
    Save(*s);
    const SpanRange beyond{.end = cuts_[0] + 1};
    std::vector<std::byte> span(imager.span_bytes(beyond));
    EXPECT_EQ(imager.SaveImage(*s, beyond, {}, span).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(imager.SaveImage(*s, {}, std::span(fixed).first(8), {}).code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(Restore(0, *s).code(), StatusCode::kFailedPrecondition) << "it is in use";
    if (cuts_[0] > 1) {
      FollowedSequence small(runner_, cuts_[0] - 1, drafts_);
      EXPECT_EQ(Restore(0, *small).code(), StatusCode::kResourceExhausted);
    }
    FollowedSequence fresh(runner_, Context(), drafts_);
    images_[0].fixed.pop_back();
    EXPECT_EQ(Restore(0, *fresh).code(), StatusCode::kInvalidArgument);
    images_[0].fixed.push_back(std::byte{0});
    const SavedSpan kept = spans_[0];
    spans_[0].range.begin = 1;
    EXPECT_EQ(Restore(0, *fresh).code(), StatusCode::kInvalidArgument) << "a gap";
    spans_[0] = kept;
    EXPECT_TRUE(Restore(0, *fresh).ok()) << "refusals left it as it was";
    const Segment open{.sequence = &*s, .tokens = tokens_.subspan(cuts_[0], 2)};
    ASSERT_TRUE(runner_.RunTrunk({&open, 1}, Phase::kWindow).ok());
    EXPECT_EQ(imager.SaveImage(*s, {}, fixed, {}).code(), StatusCode::kFailedPrecondition)
        << "a pass is open";
    ASSERT_TRUE(runner_.Commit(*s, 0).ok());
    EXPECT_TRUE(imager.SaveImage(*s, {}, fixed, {}).ok()) << "no row of the window was kept";
    ASSERT_TRUE(runner_.RunTrunk({&open, 1}, Phase::kWindow).ok());
    ASSERT_TRUE(runner_.Commit(*s, 1).ok());
    EXPECT_EQ(imager.SaveImage(*s, {}, fixed, {}).code(), StatusCode::kFailedPrecondition)
        << "windows leave other bits than prompts";
  }

 private:
  uint32_t Context() const { return static_cast<uint32_t>(tokens_.size()) + 8; }

  void Decode(FollowedSequence& s) {
    for (uint32_t step = 0; s->token_count() + 9 <= tokens_.size() && step < 4; ++step) {
      const uint32_t rows = 1 + 2 * (step % 3);
      s.Read(tokens_, rows, rows - step % 2, Phase::kWindow);
    }
  }
  void Save(const Sequence& sequence) {
    SequenceImager& imager = runner_.imager();
    const uint32_t drafts = imager.ImageDraftCount(sequence);
    EXPECT_EQ(drafts, drafts_ ? sequence.token_count() - 1 : 0);
    SavedSpan span;
    if (!spans_.empty()) {
      span.range.begin = spans_.back().range.end;
      span.range.draft_begin = spans_.back().range.draft_end;
    }
    span.range.end = sequence.token_count();
    span.range.draft_end = drafts;
    span.bytes.resize(imager.span_bytes(span.range));
    SavedImage image{.token_count = sequence.token_count(), .draft_count = drafts, .fixed = {}};
    image.fixed.resize(imager.fixed_bytes());
    const absl::Status saved = imager.SaveImage(sequence, span.range, image.fixed, span.bytes);
    ASSERT_TRUE(saved.ok()) << saved;
    spans_.push_back(std::move(span));
    images_.push_back(std::move(image));
  }
  absl::Status Restore(size_t image, Sequence& sequence) {
    std::vector<SpanView> spans;
    for (size_t i = 0; i <= image; ++i) {
      spans.push_back({.range = spans_[i].range, .bytes = spans_[i].bytes});
    }
    return runner_.imager().RestoreImage({.tokens = tokens_.first(images_[image].token_count),
                                          .draft_count = images_[image].draft_count,
                                          .fixed = images_[image].fixed,
                                          .spans = spans},
                                         sequence);
  }
  void ExpectSameImage(size_t image, const Sequence& sequence) {
    SequenceImager& imager = runner_.imager();
    std::vector<std::byte> fixed(imager.fixed_bytes());
    const absl::Status saved = imager.SaveImage(sequence, {}, fixed, {});
    ASSERT_TRUE(saved.ok()) << saved;
    EXPECT_TRUE(fixed == images_[image].fixed);
    for (size_t i = 0; i <= image; ++i) {
      std::vector<std::byte> span(spans_[i].bytes.size());
      ASSERT_TRUE(imager.SaveImage(sequence, spans_[i].range, {}, span).ok());
      EXPECT_TRUE(span == spans_[i].bytes) << "span that ends at " << spans_[i].range.end;
    }
  }

  ModelRunner& runner_;
  std::span<const TokenId> tokens_;
  std::vector<uint32_t> cuts_;
  bool drafts_;
  std::vector<SavedSpan> spans_;
  std::vector<SavedImage> images_;
  std::vector<std::vector<float>> logits_;  // of the pass that ended at each cut
};

}  // namespace hearth
