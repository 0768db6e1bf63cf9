#include "runtime/model/ngram_hash.h"

#include "runtime/base/check.h"

namespace hearth {

void NgramRows(const NgramGeometry& geometry, std::span<const TokenId> tokens, size_t position,
               std::span<uint64_t> rows) {
  HEARTH_CHECK(position < tokens.size() && rows.size() == geometry.head_count());
  uint64_t hash = static_cast<uint64_t>(tokens[position]) * geometry.multipliers[0];
  bool cut = false;
  for (uint32_t back = 1; back < geometry.ngram_size; ++back) {
    cut = cut || position < back || tokens[position - back] == geometry.eos_token;
    const TokenId token = cut ? geometry.eos_token : tokens[position - back];
    hash ^= static_cast<uint64_t>(token) * geometry.multipliers[back];
    for (uint32_t h = 0; h < geometry.heads_per_ngram; ++h) {
      const uint32_t head = (back - 1) * geometry.heads_per_ngram + h;
      rows[head] = hash % geometry.head_rows[head] + geometry.head_offsets[head];
    }
  }
}

}  // namespace hearth
