// One step of the trellis search, for each instruction set: same results from all.
#pragma once

#include <cstdint>

#include "pack/quant/xt_trellis.h"

namespace hearth {

struct XtStepArgs {
  const XtTrellis* trellis = nullptr;
  const XtTrellis::Phase* phase = nullptr;
  const uint16_t* errors = nullptr;  // [256] by hash: multiples of 2^bits
  uint16_t floor = 0;                // subtracted from the metrics before: a multiple of 2^bits
  const uint16_t* from = nullptr;    // metrics by state, on 64 bytes, as `to`
  uint16_t* to = nullptr;
  uint16_t* back = nullptr;  // [symbol / 4][group]: dropped bits of four symbols, the first lowest
};

// For every group g, symbol c and dropped bits d:
//   m(d)   = ((from[Predecessor(g, d)] - floor) with its low `bits` bits replaced by d
//   to[g << bits | c] = min(kXtMetricMax, min over d of m(d) + errors[hash of c, g and d])
// Returns the least of `to`, with its low bits cleared.
uint16_t XtStepScalar(const XtStepArgs& args);
uint16_t XtStepAvx2(const XtStepArgs& args);
uint16_t XtStepAvx512(const XtStepArgs& args);

}  // namespace hearth
