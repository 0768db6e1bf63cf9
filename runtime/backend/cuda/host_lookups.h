// What the host looks up for a pass on a card: embeddings, n-gram rows, and pieces of rings.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "pack/format/geometry.h"
#include "pack/format/matrix_layout.h"
#include "pack/reader/pack.h"
#include "runtime/base/ids.h"
#include "runtime/base/worker_team.h"

namespace hearth {

// Table rows of the tokens from position `base` on, head_count() each; nothing for a model without
// a table. `tokens` from the start of the sequence. Returns the end of what it wrote.
uint64_t* HashNgrams(const NgramGeometry& n, std::span<const TokenId> tokens, uint32_t base,
                     uint64_t* rows);

// Embeddings of tokens and rows of an n-gram table, as EmbedTokens() and NgramFile::ReadRows() give
// them. The many of a prompt are shared among the workers of `team`; null: the caller reads all.
void EmbedPrompt(const MatrixView& table, std::span<const TokenId> tokens, WorkerTeam* team,
                 float* out);
absl::Status ReadNgramRows(const NgramFile& file, std::span<const uint64_t> rows, WorkerTeam* team,
                           std::span<float> out);

// Rows [row, row + rows) of a dense array lie in rows [ring_row, ring_row + rows) of a ring.
struct RingPiece {
  uint64_t row = 0;
  uint64_t ring_row = 0;
  uint64_t rows = 0;
};

// Where `rows` <= ring_rows rows from `position` on lie: the second piece may be empty.
std::array<RingPiece, 2> RingPieces(uint64_t position, uint64_t rows, uint64_t ring_rows);

}  // namespace hearth
