#include "tests/support/tiny_codecs.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace hearth {

double TinyE2m1(uint8_t code) {
  constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

double TinyE4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  double magnitude = 0;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, -9);
  } else {
    magnitude = std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  }
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

double TinyBf16(uint16_t code) {
  const uint32_t bits = static_cast<uint32_t>(code) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint16_t TinyToBf16(double value) {
  const auto narrow = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

Prng TinyStream(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  }
  return Prng(hash ^ (seed * 0x9E3779B97F4A7C15ull));
}

double TinySigned(Prng& prng) { return 2 * prng.Uniform() - 1; }

TinyCsf EncodeTinyCsf(std::span<const uint8_t> scales, uint32_t rows, uint32_t cols) {
  TinyCsf csf;
  for (uint32_t slab = 0; slab < rows; slab += 16) {
    std::vector<uint8_t> bases;
    std::vector<uint8_t> nibbles;
    for (uint32_t row = slab; row < slab + 16; ++row) {
      const std::span<const uint8_t> bytes = scales.subspan(size_t{row} * cols, cols);
      uint32_t best_base = 0;
      uint32_t best_count = 0;
      for (uint32_t base = 0; base <= 240; ++base) {
        uint32_t count = 0;
        for (const uint8_t b : bytes) count += (b >= base && b < base + 16) ? 1 : 0;
        if (count > best_count) best_base = base, best_count = count;
      }
      bases.push_back(static_cast<uint8_t>(best_base));
      for (uint32_t col = 0; col < cols; ++col) {
        const bool covered = bytes[col] >= best_base && bytes[col] < best_base + 16;
        nibbles.push_back(covered ? static_cast<uint8_t>(bytes[col] - best_base) : 0);
        if (!covered) {
          csf.exceptions.push_back((row * cols + col) | (uint32_t{bytes[col]} << 24));
        }
      }
    }
    csf.fixed.insert(csf.fixed.end(), bases.begin(), bases.end());
    for (size_t i = 0; i < nibbles.size(); i += 2) {
      csf.fixed.push_back(static_cast<uint8_t>(nibbles[i] | (nibbles[i + 1] << 4)));
    }
  }
  return csf;
}

}  // namespace hearth
