// Top-k choice. Contract: ops/router.h.
#include <algorithm>
#include <bit>

#include "cpu_kernels/scalar/kernels.h"

namespace hearth::scalar {
namespace {

// Orders as the floats do, with -0 equal to +0; not for NaN.
uint32_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 + 0 is +0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Fewer candidates than this are not worth a cut.
constexpr uint32_t kCandidatesMin = 64;

}  // namespace

// One scan keeps the words above the k-th best known so far; a full buffer of candidates is cut
// back to its k best, which raises that bound. Few values of a long row get further than the
// comparison.
bool TopK(const TopKArgs& args) {
  const auto better = [](uint64_t a, uint64_t b) { return a > b; };
  uint64_t* const begin = args.scratch;
  const uint32_t capacity = std::min(args.count, std::max(2 * args.k, kCandidatesMin));
  uint32_t kept = 0;
  uint64_t bound = args.k == 0 ? UINT64_MAX : 0;
  for (uint32_t i = 0; i < args.count; ++i) {
    const float value = args.values[i];
    if (value != value) return false;
    // A larger word is a better choice: the value first, then the lower index.
    const uint64_t word = uint64_t{OrderedBits(value)} << 32 | ~i;
    if (word <= bound) continue;
    begin[kept++] = word;
    if (kept < capacity || kept == args.k) continue;
    std::nth_element(begin, begin + args.k - 1, begin + kept, better);
    kept = args.k;
    bound = begin[kept - 1];
  }
  std::partial_sort(begin, begin + args.k, begin + kept, better);
  for (uint32_t r = 0; r < args.k; ++r) args.index[r] = ~static_cast<uint32_t>(begin[r]);
  return true;
}

}  // namespace hearth::scalar
