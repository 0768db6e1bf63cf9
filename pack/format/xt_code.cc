#include "pack/format/xt_code.h"

#include <algorithm>

namespace hearth {

uint8_t XtApply(const XtMatrix& matrix, uint8_t byte) {
  uint8_t image = 0;
  for (uint32_t bit = 0; bit < 8; ++bit) {
    if ((byte >> bit & 1) != 0) image ^= matrix[bit];
  }
  return image;
}

bool XtCode::uses_oldest() const {
  return std::any_of(oldest.begin(), oldest.end(),
                     [](const XtMatrix& m) { return m != XtMatrix{}; });
}

uint8_t XtCode::Hash(uint32_t phase, uint8_t recent, uint8_t older_byte,
                     uint8_t oldest_byte) const {
  return recent ^ XtApply(older[phase], older_byte) ^ XtApply(oldest[phase], oldest_byte);
}

int XtCode::Level(uint32_t phase, uint8_t hash) const {
  const uint32_t high = hash >> 4;
  const uint32_t low = hash & 15;
  const uint32_t a = newest_is_high(phase) ? high : low;
  const uint32_t b = newest_is_high(phase) ? low : high;
  return table[0][a] + table[1][b] + table[2][a ^ b];
}

}  // namespace hearth
