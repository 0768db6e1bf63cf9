// What every backend asks of a pass before it runs it, in the same words, and the rows of the
// embedding table that it starts from.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "pack/format/geometry.h"
#include "pack/format/matrix_layout.h"
#include "runtime/backend/backend.h"
#include "runtime/base/ids.h"

namespace hearth {

// InvalidArgument when the model hashes n-grams and nothing that reads its table is there.
absl::Status CheckNgramTable(const ModelGeometry& geometry, bool has_table);

// InvalidArgument names the first token outside the vocabulary.
absl::Status CheckTokens(const ModelGeometry& geometry, std::span<const TokenId> tokens);

// InvalidArgument for an empty segment, a token outside the vocabulary or too many rows.
absl::Status CheckTrunk(const ModelGeometry& geometry, const PassLimits& limits,
                        std::span<const Segment> segments, Phase phase);

// A draft pass that is asked for, and what its sequence has.
struct DraftAsk {
  std::span<const TokenId> tokens;
  Backend::DraftSource source = Backend::DraftSource::kTrunk;
  uint32_t base = 0;  // position of its first row
  uint32_t context_tokens_max = 0;
  uint32_t rows_max = 0;
  bool has_head = false;    // the model's MTP layer
  bool has_hidden = false;  // the trunk's hidden states of its rows
};
// FailedPrecondition without a head or hidden states, InvalidArgument for its rows and tokens,
// ResourceExhausted when the context has no room.
absl::Status CheckDraft(const ModelGeometry& geometry, const DraftAsk& ask);
// FailedPrecondition when the last draft pass was chained.
absl::Status CheckDraftKept(bool from_trunk);

// FailedPrecondition but for trunk layers within a window.
absl::Status CheckPrediction(const ModelGeometry& geometry, bool in_window, LayerId layer);

// Rows of `table` (kF32 or kBf16) as fp32, one behind the other. Returns the end of what it wrote.
float* EmbedTokens(const MatrixView& table, std::span<const TokenId> tokens, float* out);

}  // namespace hearth
