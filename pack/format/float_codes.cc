#include "pack/format/float_codes.h"

namespace hearth {

float DecodeFp16(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t exponent = (code >> 10) & 31u;
  const uint32_t mantissa = code & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t EncodeFp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds past 65504
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, in units of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

uint8_t EncodeE4m3(float value) {
  if (std::isnan(value)) return 0x7F;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (magnitude >= 448.0f) return sign | 0x7E;
  if (magnitude < 0x1p-6f) {  // subnormal, in units of 2^-9; 8 units is the smallest normal code
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7FFFFu + ((bits >> 20) & 1u);
  const uint32_t code = (rounded >> 20) - (120u << 3);
  return sign | static_cast<uint8_t>(code > 0x7E ? 0x7E : code);
}

uint8_t EncodeE2m1(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float m = std::fabs(value);
  // Midpoints between neighbours; a tie goes to the even code.
  if (m <= 0.25f) return sign | 0;
  if (m < 0.75f) return sign | 1;
  if (m <= 1.25f) return sign | 2;
  if (m < 1.75f) return sign | 3;
  if (m <= 2.5f) return sign | 4;
  if (m < 3.5f) return sign | 5;
  if (m <= 5.0f) return sign | 6;
  return sign | 7;
}

}  // namespace hearth
