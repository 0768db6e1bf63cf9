#include "runtime/backend/cuda/pass_input.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "runtime/base/load.h"
#include "runtime/model/ngram_hash.h"

namespace hearth {

absl::Status CheckTokens(const ModelGeometry& g, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= g.vocab_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " is ", tokens[i], ": this model knows 0 to ", g.vocab_count - 1));
    }
  }
  return absl::OkStatus();
}

float* EmbedTokens(const MatrixView& table, std::span<const TokenId> tokens, float* out) {
  for (const TokenId token : tokens) {
    const size_t first = static_cast<size_t>(token) * table.cols;
    if (table.format == MatrixFormat::kF32) {
      std::memcpy(out, table.data.data() + first * 4, size_t{table.cols} * 4);
    } else {
      const std::byte* row = table.data.data() + first * 2;
      for (uint32_t j = 0; j < table.cols; ++j) {
        out[j] = DecodeBf16(Load<uint16_t>(row + size_t{j} * 2));
      }
    }
    out += table.cols;
  }
  return out;
}

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
