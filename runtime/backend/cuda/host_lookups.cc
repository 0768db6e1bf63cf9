#include "runtime/backend/cuda/host_lookups.h"

#include <algorithm>

#include "runtime/model/ngram_hash.h"

namespace hearth {

uint64_t* HashNgrams(const NgramGeometry& n, std::span<const TokenId> tokens, uint32_t base,
                     uint64_t* rows) {
  if (n.row_count == 0) return rows;
  for (size_t position = base; position < tokens.size(); ++position) {
    NgramRows(n, tokens, position, {rows, n.head_count()});
    rows += n.head_count();
  }
  return rows;
}

std::array<RingPiece, 2> RingPieces(uint64_t position, uint64_t rows, uint64_t ring_rows) {
  const uint64_t at = position % ring_rows;
  const uint64_t first = std::min(rows, ring_rows - at);
  return {{{.row = 0, .ring_row = at, .rows = first},
           {.row = first, .ring_row = 0, .rows = rows - first}}};
}

}  // namespace hearth
