#include "pack/convert/ngram_constants.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "runtime/base/prng.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15ull;
// Trial division up to 2^16 per candidate keeps the search short; published bases are 2e7.
constexpr uint64_t kBaseMax = 0xFFFFFFFFull;
constexpr uint64_t kRowMultipleMax = 1u << 20;

bool IsPrime(uint64_t value) {
  if (value < 4) return value >= 2;
  if (value % 2 == 0) return false;
  for (uint64_t d = 3; d * d <= value; d += 2) {
    if (value % d == 0) return false;
  }
  return true;
}

}  // namespace

absl::Status DeriveNgramConstants(const NgramDerivation& from, uint64_t vocab_count,
                                  NgramGeometry& ngram) {
  if (from.vocab_base == 0 || from.vocab_base > kBaseMax || from.row_multiple == 0 ||
      from.row_multiple > kRowMultipleMax || vocab_count == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ngram_vocab_size_base ", from.vocab_base, ", make_ngram_vocab_size_divisible_by ",
        from.row_multiple, ": accepted are 1 to ", kBaseMax, " and 1 to ", kRowMultipleMax));
  }
  ngram.multipliers.clear();
  const uint64_t half = std::max<uint64_t>(1, 0x7FFFFFFFFFFFFFFFull / vocab_count / 2);
  for (uint64_t i = 0; i < ngram.ngram_size; ++i) {
    ngram.multipliers.push_back(2 * (SplitMix64(from.seed + kGamma * (i + 1)) % half) + 1);
  }
  ngram.head_rows.clear();
  ngram.head_offsets.clear();
  uint64_t total = 0;
  uint64_t candidate = from.vocab_base;
  while (ngram.head_rows.size() < ngram.head_count()) {
    if (IsPrime(candidate)) {
      ngram.head_rows.push_back(candidate);
      ngram.head_offsets.push_back(total);
      total += candidate;
    }
    ++candidate;
  }
  ngram.row_count = AlignUp(total, from.row_multiple);
  return absl::OkStatus();
}

}  // namespace hearth
