// The narrow number formats of checkpoints and packs, decoded exactly to fp32 and encoded with
// round-to-nearest-even. These scalar functions are the definition; kernels are tested against
// them.
//   E2M1  4 bits  s ee m        magnitudes 0 .5 1 1.5 2 3 4 6           (NVFP4 elements)
//   E4M3  8 bits  s eeee mmm    bias 7, no infinity, 0x7F/0xFF is NaN     (FP8, NVFP4 block scales)
//   E8M0  8 bits  exponent only 2^(e-127), 0xFF is NaN                    (MXFP8 block scales)
//   BF16, FP16                  IEEE-style
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hearth {

inline constexpr std::array<float, 16> kE2m1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};
// Twice the value, as an integer: what integer dot products use. Code 8 is minus zero.
inline constexpr std::array<int8_t, 16> kE2m1Doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

constexpr float DecodeE2m1(uint8_t code) { return kE2m1Values[code & 15]; }

// 254 finite values; 0x7F and 0xFF give NaN. 0x7E is 448.
constexpr float DecodeE4m3(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15u;
  const uint32_t mantissa = code & 7u;
  float magnitude = 0;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::bit_cast<float>(((exponent + 120u) << 23) | (mantissa << 20));
  }
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}
constexpr bool IsE4m3Nan(uint8_t code) { return (code & 0x7F) == 0x7F; }

// E8M0: 0xFF gives NaN; code 0 is 2^-127, an fp32 subnormal.
constexpr float DecodeE8m0(uint8_t code) {
  if (code == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return code == 0 ? std::bit_cast<float>(0x00400000u)
                   : std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

constexpr float DecodeBf16(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}
constexpr uint16_t EncodeBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float DecodeFp16(uint16_t code);
uint16_t EncodeFp16(float value);  // overflow gives infinity

// Round to nearest, ties to even mantissa; beyond 448 saturates to +-448, NaN gives 0x7F.
uint8_t EncodeE4m3(float value);
// Round to nearest, ties to even mantissa; beyond 6 saturates.
uint8_t EncodeE2m1(float value);

}  // namespace hearth
