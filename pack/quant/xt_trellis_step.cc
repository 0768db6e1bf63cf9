#include "pack/quant/xt_trellis_step.h"

#include <algorithm>
#include <array>

namespace hearth {

uint16_t XtStepScalar(const XtStepArgs& args) {
  const XtTrellis& trellis = *args.trellis;
  const uint32_t bits = trellis.code.bits;
  const uint32_t branches = trellis.branch_count();
  const uint32_t mask = branches - 1;
  const uint32_t groups = trellis.group_count();
  uint32_t least = 0xFFFF;
  std::array<uint32_t, kXtBranchesMax> metric;
  for (uint32_t g = 0; g < groups; ++g) {
    const uint8_t group_hash = args.phase->hash_of_high[g / 16] ^ args.phase->hash_of_lane[g % 16];
    for (uint32_t d = 0; d < branches; ++d) {
      const uint32_t before = args.from[trellis.Predecessor(g, d)];
      metric[d] = ((before - std::min<uint32_t>(before, args.floor)) & ~mask) | d;
    }
    uint32_t word = 0;
    for (uint32_t c = 0; c < branches; ++c) {
      const uint8_t hash = group_hash ^ args.phase->hash_of_symbol[c];
      uint32_t best = kXtMetricMax;
      for (uint32_t d = 0; d < branches; ++d) {
        const uint32_t sum = metric[d] + args.errors[hash ^ args.phase->hash_of_dropped[d]];
        best = std::min(best, sum);
      }
      args.to[(g << bits) + c] = static_cast<uint16_t>(best);
      least = std::min(least, best);
      word |= (best & mask) << (bits * (c % kXtFieldsPerBackWord));
      if (c % kXtFieldsPerBackWord == kXtFieldsPerBackWord - 1) {
        args.back[c / kXtFieldsPerBackWord * groups + g] = static_cast<uint16_t>(word);
        word = 0;
      }
    }
  }
  return static_cast<uint16_t>(least & ~mask);
}

}  // namespace hearth
