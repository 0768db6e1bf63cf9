// Number formats of the generated checkpoint, in float64 and from the format documents alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/prng.h"

namespace hearth {

double TinyE2m1(uint8_t code);  // 0..15
double TinyE4m3(uint8_t code);  // NaN for 0x7F and 0xFF
double TinyBf16(uint16_t code);
uint16_t TinyToBf16(double value);  // truncates: any BF16 near `value` serves

// A stream of numbers that depends on (seed, name) alone.
Prng TinyStream(uint64_t seed, std::string_view name);
double TinySigned(Prng& prng);  // uniform in [-1, 1)

// NVIDIA's lossless form of E4M3 block scales: a stream of one base byte per row and 4-bit offsets,
// and sorted exceptions.
struct TinyCsf {
  std::vector<uint8_t> fixed;        // (rows / 16, 16 * (1 + cols / 2))
  std::vector<uint32_t> exceptions;  // position | byte << 24
};
TinyCsf EncodeTinyCsf(std::span<const uint8_t> scales, uint32_t rows, uint32_t cols);

}  // namespace hearth
