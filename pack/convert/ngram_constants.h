// The constants of the hashed n-gram embedding, derived as the training code does it. Checkpoints
// store them too; this is for those that do not.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pack/format/geometry.h"

namespace hearth {

struct NgramDerivation {
  uint64_t vocab_base = 0;    // ngram_vocab_size_base; 0: not stated, nothing can be derived
  uint64_t row_multiple = 1;  // make_ngram_vocab_size_divisible_by
  uint64_t seed = 1234;
};

// Fills multipliers, head_rows, head_offsets and row_count; ngram_size and heads_per_ngram are set.
//   head_rows     the first head_count primes from vocab_base on; head_offsets: their running sums
//   row_count     their sum, rounded up to row_multiple
//   multipliers   2 * (splitmix64(seed + gamma * (i + 1)) mod half) + 1, with half such that the
//   product
//                 with any token stays below 2^63
// InvalidArgument for a base or multiple that is out of bounds.
absl::Status DeriveNgramConstants(const NgramDerivation& from, uint64_t vocab_count,
                                  NgramGeometry& ngram);

}  // namespace hearth
