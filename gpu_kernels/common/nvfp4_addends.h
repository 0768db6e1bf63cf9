// E2M1 codes as two bytes each that add up to the doubled value, four codes at a time, by the byte
// permutation of nvfp4_codes.h. They meet in an integer dot product of a tensor core, so that
// nothing has to be combined before it:
//   twice   table 2 * value, the whole nibble: 2 * value of a positive code, 0 of a negative one
//   minus   table -value, the nibble without its sign: -|value|
#pragma once

#include <cstdint>

#include "pack/format/float_codes.h"

namespace hearth {

// Four of a table's eight bytes, entry `first` lowest: `factor` times the doubled value.
constexpr uint32_t Nvfp4TableWord(int32_t factor, uint32_t first) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    word |= (static_cast<uint32_t>(factor * kE2m1Doubled[first + i]) & 0xFFu) << (8 * i);
  }
  return word;
}

inline constexpr uint32_t kNvfp4TwiceLow = Nvfp4TableWord(2, 0);
inline constexpr uint32_t kNvfp4TwiceHigh = Nvfp4TableWord(2, 4);
inline constexpr uint32_t kNvfp4MinusLow = Nvfp4TableWord(-1, 0);
inline constexpr uint32_t kNvfp4MinusHigh = Nvfp4TableWord(-1, 4);
inline constexpr uint32_t kNvfp4MagnitudeMask = 0x77777777;

// The bits of an E4M3 scale (4 of exponent, 3 of mantissa) moved to fp16's places are 2^-8 of its
// value, subnormal codes included; times 2^7 they are half of it, exactly: the doubling of the
// codes is undone here. fp16 bits of 2^7.
inline constexpr uint32_t kE4m3ToHalfShift = 7;
inline constexpr uint16_t kHalfE4m3FactorBits = 0x5800;

}  // namespace hearth
