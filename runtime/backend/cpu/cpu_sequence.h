// The state of one sequence on the CPU backend. What a window pass writes stays tentative until it
// is committed: delta-rule states and convolution windows keep a committed and a working copy,
// everything indexed by position (KV, indexer keys) is simply overwritten by the next rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/format/geometry.h"
#include "runtime/backend/backend.h"
#include "runtime/base/scratch_arena.h"

namespace hearth {

struct GdnState {
  // (value_heads, key_dim, value_dim) each; `working` is where the last window pass left off.
  std::span<float> committed;
  std::span<float> working;
  std::span<float> conv_history;  // (taps - 1, channels): inputs of the convolution before the pass
  // What a window pass needs to be replayed for fewer rows.
  std::span<float> window_conv;   // (taps - 1 + window_rows_max, channels): history, then the rows
  std::span<float> window_qkv;    // (window_rows_max, channels): convolved and normalised
  std::span<float> window_decay;  // (window_rows_max, value_heads)
  std::span<float> window_beta;
};

struct QsaState {
  std::span<float> k;  // (context, kv_heads * head_dim), rotated
  std::span<float> v;  // the same, as projected
  std::span<float>
      raw_keys;  // (raw_rows, indexer_dim): ring, the row of position p is p % raw_rows
  std::span<float>
      block_keys;  // (context / block_tokens, indexer_dim): pooled, normalised, rotated
  uint32_t raw_rows = 0;
};

struct NgramState {
  std::span<float>
      history;  // ((taps - 1) * ngram_size, D): inputs of the convolution before the pass
  std::span<float> window;  // (history rows + window_rows_max, D)
};

class CpuSequence final : public Sequence {
 public:
  static absl::StatusOr<std::unique_ptr<CpuSequence>> Create(const ModelGeometry& geometry,
                                                             const PassLimits& limits,
                                                             uint32_t context_tokens_max);

  uint32_t token_count() const override { return token_count_; }
  uint32_t draft_count() const override { return draft_count_; }
  uint32_t context_tokens_max() const override { return context_tokens_max_; }

  // Trunk passes. Begin appends tokens; the rows up to `tokens()` are then token_count() and the
  // new ones.
  absl::Status BeginPass(std::span<const TokenId> tokens);
  absl::Status CommitPass(const ModelGeometry& geometry, uint32_t row_count);
  std::span<const TokenId> tokens() const { return tokens_; }
  uint32_t pass_rows() const { return pass_rows_; }
  bool pass_open() const { return pass_open_; }
  bool pass_finished() const { return hidden_rows_ == pass_rows_; }  // every layer has run
  void set_window(bool window) { pass_is_window_ = window; }
  bool pass_is_window() const { return pass_is_window_; }
  // Whether rows of a window were ever committed.
  bool has_windows() const { return has_windows_; }
  // A fresh sequence becomes one that has read `tokens`, all of it but the arrays' values. Returns
  // where the hidden state of the last token belongs.
  std::span<float> Restore(std::span<const TokenId> tokens, uint32_t draft_count);

  // Hidden states of the trunk (rows of D values): the last pass and the row before it.
  void StoreHidden(std::span<const float> rows);
  // The row of `position`; empty when it is not at hand.
  std::span<const float> HiddenAt(uint32_t position) const;

  // Draft passes.
  uint32_t draft_position() const { return draft_position_; }
  void BeginDraftPass(uint32_t position, uint32_t rows) { draft_position_ = position + rows; }
  void CommitDraftPass() { draft_count_ = draft_position_; }
  std::span<float> chain_hidden() { return chain_hidden_; }

  GdnState& gdn(uint32_t layer) { return gdn_[layer]; }
  QsaState& qsa(uint32_t layer) {
    return qsa_[layer];
  }  // the MTP layer's id is the trunk's layer count
  NgramState& ngram() { return ngram_; }
  const GdnState& gdn(uint32_t layer) const { return gdn_[layer]; }
  const QsaState& qsa(uint32_t layer) const { return qsa_[layer]; }
  const NgramState& ngram() const { return ngram_; }

  uint64_t bytes() const { return arena_.bytes(); }
  // What the state of such a sequence takes.
  static uint64_t StateBytes(const ModelGeometry& geometry, const PassLimits& limits,
                             uint32_t context_tokens_max);

 private:
  CpuSequence(const ModelGeometry& geometry, uint32_t context_tokens_max);
  void ReserveState(const ModelGeometry& geometry, const PassLimits& limits);

  uint32_t context_tokens_max_ = 0;
  uint32_t token_count_ = 0;
  uint32_t draft_count_ = 0;
  uint32_t draft_position_ = 0;
  uint32_t pass_rows_ = 0;
  uint32_t hidden_dim_ = 0;
  uint32_t hidden_base_ = 0;  // position of hidden row 1
  uint32_t hidden_rows_ = 0;  // rows at hand after row 0
  bool pass_open_ = false;
  bool pass_is_window_ = false;
  bool has_windows_ = false;
  std::vector<TokenId> tokens_;  // committed, then the open pass's; reserved to the context
  std::vector<GdnState> gdn_;
  std::vector<QsaState> qsa_;
  NgramState ngram_;
  std::span<float> hidden_;        // (1 + rows max, D)
  std::span<float> chain_hidden_;  // (D)
  ScratchArena arena_;
};

}  // namespace hearth
