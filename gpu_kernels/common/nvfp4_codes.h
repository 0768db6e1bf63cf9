// E2M1 codes as doubled integers, eight at a time, by the GPU's byte permutation (PTX prmt.b32):
// for each of the four low nibbles of a selector it takes the byte that the nibble's low three bits
// name out of two 32-bit words; with the nibble's top bit set it takes that byte's sign instead,
// 0xFF or 0. So one lookup with the whole nibble and one with its sign bit cleared, combined by
// exclusive or, read a table of sixteen entries out of two tables of eight:
//   code i      magnitude[i] ^ signed[i]
//   code i + 8  magnitude[i] ^ sign(signed[i])
// A table entry is 12 + the doubled value, which is 0 to 24: the sign of every signed[i] is then
// set. The twelves leave a dot product through the sum of its activations.
//
// Nibbles of a 16-bit half of a code word (pack/format/expert_layout.h): elements 0, 4, 1, 5 of the
// lower half, 2, 6, 3, 7 of the upper; activations are put in the same order when they are staged.
#pragma once

#include <cstdint>

#include "pack/format/float_codes.h"

namespace hearth {

inline constexpr int32_t kNvfp4Offset = 12;

// Four of the table's eight magnitude bytes, entry `first` lowest.
constexpr uint32_t Nvfp4MagnitudeWord(uint32_t first) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto negative = static_cast<uint32_t>(kNvfp4Offset - kE2m1Doubled[first + i]);
    word |= (~negative & 0xFFu) << (8 * i);
  }
  return word;
}
constexpr uint32_t Nvfp4SignedWord(uint32_t first) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto positive = static_cast<uint32_t>(kNvfp4Offset + kE2m1Doubled[first + i]);
    word |= (positive ^ (Nvfp4MagnitudeWord(first) >> (8 * i) & 0xFFu)) << (8 * i);
  }
  return word;
}

inline constexpr uint32_t kNvfp4MagnitudeLow = Nvfp4MagnitudeWord(0);
inline constexpr uint32_t kNvfp4MagnitudeHigh = Nvfp4MagnitudeWord(4);
inline constexpr uint32_t kNvfp4SignedLow = Nvfp4SignedWord(0);
inline constexpr uint32_t kNvfp4SignedHigh = Nvfp4SignedWord(4);

// What adding the sum of products to an integer and reading the bits as fp32 gives: the integer
// itself, exactly, once this float is subtracted. 1.5 * 2^23; sums stay below 2^22.
inline constexpr int32_t kIntegerFloatBits = 0x4B400000;
inline constexpr float kIntegerFloat = 0x1.8p23f;

// (3 bits of mantissa, 4 of exponent) moved to fp32's places is 2^-120 of the E4M3 value, subnormal
// codes included; the doubling of the codes is undone here too.
inline constexpr float kHalfE4m3Factor = 0x1p119f;

}  // namespace hearth
