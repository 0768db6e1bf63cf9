#include "runtime/backend/cpu/cpu_sequence.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

uint32_t RowsMax(const PassLimits& limits) {
  return std::max(limits.prompt_rows_max, limits.window_rows_max);
}

}  // namespace

void CpuSequence::ReserveState(const ModelGeometry& g, const PassLimits& limits) {
  const GdnGeometry& n = g.gdn;
  const uint64_t window = limits.window_rows_max;
  const uint64_t state = uint64_t{n.value_head_count} * n.key_head_dim * n.value_head_dim;
  const AttentionGeometry& a = g.attention;
  const uint64_t kv = uint64_t{a.kv_head_count} * a.head_dim;
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    if (layer < g.layer_count() && g.layers[layer] == MixerKind::kGdn) {
      GdnState& s = gdn_[layer];
      arena_.Reserve(s.committed, state);
      arena_.Reserve(s.working, state);
      arena_.Reserve(s.conv_history, uint64_t{n.conv_taps - 1} * n.conv_channels());
      arena_.Reserve(s.window_conv, (n.conv_taps - 1 + window) * n.conv_channels());
      arena_.Reserve(s.window_qkv, window * n.conv_channels());
      arena_.Reserve(s.window_decay, window * n.value_head_count);
      arena_.Reserve(s.window_beta, window * n.value_head_count);
    } else {
      QsaState& s = qsa_[layer];
      s.raw_rows = RowsMax(limits) + 2 * a.block_tokens;
      arena_.Reserve(s.k, context_tokens_max_ * kv);
      arena_.Reserve(s.v, context_tokens_max_ * kv);
      arena_.Reserve(s.raw_keys, uint64_t{s.raw_rows} * a.indexer_head_dim);
      arena_.Reserve(s.block_keys,
                     uint64_t{context_tokens_max_ / a.block_tokens + 1} * a.indexer_head_dim);
    }
  }
  if (g.ngram.row_count != 0) {
    const uint64_t rows = uint64_t{g.ngram.conv_taps - 1} * g.ngram.ngram_size;
    arena_.Reserve(ngram_.history, rows * g.stream_dim());
    arena_.Reserve(ngram_.window, (rows + window) * g.stream_dim());
  }
  arena_.Reserve(hidden_, uint64_t{RowsMax(limits) + 1} * g.stream_dim());
  arena_.Reserve(chain_hidden_, g.stream_dim());
}

CpuSequence::CpuSequence(const ModelGeometry& geometry, uint32_t context_tokens_max)
    : context_tokens_max_(context_tokens_max),
      hidden_dim_(geometry.stream_dim()),
      gdn_(geometry.layer_count()),
      qsa_(geometry.layer_count_with_mtp()) {}

uint64_t CpuSequence::StateBytes(const ModelGeometry& geometry, const PassLimits& limits,
                                 uint32_t context_tokens_max) {
  CpuSequence s(geometry, context_tokens_max);
  s.ReserveState(geometry, limits);
  return s.arena_.reserved_bytes();
}

absl::StatusOr<std::unique_ptr<CpuSequence>> CpuSequence::Create(const ModelGeometry& geometry,
                                                                 const PassLimits& limits,
                                                                 uint32_t context_tokens_max) {
  std::unique_ptr<CpuSequence> s(new CpuSequence(geometry, context_tokens_max));
  s->tokens_.reserve(context_tokens_max);
  s->ReserveState(geometry, limits);
  HEARTH_RETURN_IF_ERROR(
      Annotate(s->arena_.Allocate(),
               absl::StrCat("state of a sequence of ", context_tokens_max, " tokens")));
  return s;
}

absl::Status CpuSequence::BeginPass(std::span<const TokenId> tokens) {
  if (pass_open_) return absl::FailedPreconditionError("the last pass was not committed");
  if (tokens.size() > context_tokens_max_ - token_count_) {
    return absl::ResourceExhaustedError(absl::StrCat("context of ", context_tokens_max_,
                                                     " tokens: ", token_count_, " in use, ",
                                                     tokens.size(), " more asked for"));
  }
  if (token_count_ > 0 && hidden_rows_ > 0) {  // the row before this pass moves to the front
    const std::span<const float> last = HiddenAt(token_count_ - 1);
    HEARTH_CHECK(!last.empty());
    std::copy(last.begin(), last.end(), hidden_.begin());
  }
  hidden_base_ = token_count_;
  hidden_rows_ = 0;
  tokens_.resize(token_count_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  pass_rows_ = static_cast<uint32_t>(tokens.size());
  pass_open_ = true;
  return absl::OkStatus();
}

void CpuSequence::StoreHidden(std::span<const float> rows) {
  HEARTH_CHECK(rows.size() == size_t{pass_rows_} * hidden_dim_);
  std::copy(rows.begin(), rows.end(), hidden_.begin() + hidden_dim_);
  hidden_rows_ = pass_rows_;
}

std::span<const float> CpuSequence::HiddenAt(uint32_t position) const {
  if (position + 1 < hidden_base_ || position >= hidden_base_ + hidden_rows_) return {};
  return hidden_.subspan(size_t{position + 1 - hidden_base_} * hidden_dim_, hidden_dim_);
}

std::span<float> CpuSequence::Restore(std::span<const TokenId> tokens, uint32_t draft_count) {
  HEARTH_CHECK(token_count_ == 0 && !pass_open_ && tokens.size() <= context_tokens_max_);
  tokens_.assign(tokens.begin(), tokens.end());
  token_count_ = static_cast<uint32_t>(tokens.size());
  draft_count_ = draft_count;
  draft_position_ = draft_count;
  hidden_base_ = token_count_;
  hidden_rows_ = 0;
  return hidden_.first(hidden_dim_);
}

absl::Status CpuSequence::CommitPass(const ModelGeometry& g, uint32_t row_count) {
  if (!pass_open_) return absl::FailedPreconditionError("no pass is open");
  if (!pass_finished()) {
    // A window wrote working copies and rows that the next ones overwrite; a prompt has moved on.
    if (row_count != 0 || !pass_is_window_) {
      return absl::FailedPreconditionError(
          "the pass did not reach the last layer: only 0 rows of a window can be committed");
    }
    tokens_.resize(token_count_);
    pass_open_ = false;
    return absl::OkStatus();
  }
  if (row_count > pass_rows_ || (!pass_is_window_ && row_count != pass_rows_)) {
    return absl::InvalidArgumentError(absl::StrCat("commit of ", row_count, " rows of a ",
                                                   pass_is_window_ ? "window" : "prompt",
                                                   " pass of ", pass_rows_));
  }
  token_count_ += row_count;
  tokens_.resize(token_count_);
  pass_open_ = false;
  has_windows_ |= pass_is_window_ && row_count != 0;
  if (!pass_is_window_ || g.ngram.row_count == 0) return absl::OkStatus();
  const auto from = ngram_.window.begin() + static_cast<ptrdiff_t>(row_count) * g.stream_dim();
  std::copy(from, from + static_cast<ptrdiff_t>(ngram_.history.size()), ngram_.history.begin());
  return absl::OkStatus();
}

}  // namespace hearth
