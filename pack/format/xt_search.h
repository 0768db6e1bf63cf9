// The integers of the search for XT symbols (pack/quant/xt_trellis.h): the CPU and the GPU share
// them, so that both choose the same symbols.
#pragma once

#include <cstdint>

#include "pack/format/xt_code.h"

namespace hearth {

inline constexpr uint32_t kXtErrorMax = 0x3FFF;   // of one step, with its low bits
inline constexpr uint16_t kXtMetricMax = 0xBFF0;  // a metric that stands for no way at all
// Steps on either side of the wrap that decide the state there, in a stream that is not short.
// Survivors of a code near the limit merge late: 48 steps cost 1% more error than 128, and 200 save
// another 0.4%.
inline constexpr uint32_t kXtWrapSteps = 128;

// Below this many steps the state at the wrap is worth more than one guess: the CPU searches such
// streams again from the opposite side, the GPU does not take them.
inline constexpr uint32_t kXtShortSteps = 160;

// Units of a squared error of one level unit: 16, 8 or 4 for the error that the best code of the
// rate makes on average (sigma^2 / 4^bits), as fine as the u16 metrics of its states can span.
inline float XtUnitsPerSquareLevel(const XtCode& code) {
  constexpr float kUnitsPerMeanError[] = {0, 0, 16, 8, 4};
  const float mean_error =
      code.level_deviation * code.level_deviation / static_cast<float>(1u << (2 * code.bits));
  return kUnitsPerMeanError[code.bits] / mean_error;
}

}  // namespace hearth
