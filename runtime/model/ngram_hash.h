// Which rows of the n-gram table a token reads: a multiplicative XOR hash of the token and its
// predecessors, cut at the end-of-text token.
#pragma once

#include <cstdint>
#include <span>

#include "pack/format/geometry.h"
#include "runtime/base/ids.h"

namespace hearth {

// Rows of the token at `position` of `tokens`, a whole sequence from its start;
// rows.size() == geometry.head_count().
//   t_0 is the token; t_s the token s places back, or the end-of-text token when that lies before
//   the start or behind an end-of-text token strictly before `position` m_g = t_0*M_0 xor ... xor
//   t_(g-1)*M_(g-1);  row_i = m_(2 + i / heads_per_ngram) mod vocab_i + offset_i
void NgramRows(const NgramGeometry& geometry, std::span<const TokenId> tokens, size_t position,
               std::span<uint64_t> rows);

}  // namespace hearth
