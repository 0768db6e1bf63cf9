// XT, the trellis code of routed experts at 2, 3 or 4 bits per weight: what a stream of symbols
// decodes to. Layout of a matrix: pack/format/xt_layout.h. Encoder: pack/quant/xt_encoder.h.
//
// A stream is circular; each of its symbols (one per weight) is `bits` wide and decodes to an int
// level that depends on the symbol and on a few before it. The dependence is a sliding window, so
// any position can be decoded from the bytes around it.
//
// Bytes of a stream, as a lane of the matrix layout holds them (t counts symbols):
//   4 bits  B[l] = c[2l] | c[2l+1] << 4
//   2 bits  B[l] = c[4l] | c[4l+1] << 2 | c[4l+2] << 4 | c[4l+3] << 6
//   3 bits  B[l] as for 2 bits, from the low two bits of each symbol; R[g] has the high bit of
//           symbol 8g + i in bit i
// Let p be the place of symbol t within its byte B[l], w the width of its field (4, 2 or 2), and
//   Recent(l) = the low (p + 1) * w bits of B[l] and the other bits of B[l - 1]
//   High(g)   = the low i + 1 bits of R[g] and the other bits of R[g - 1]   (3 bits, i = t mod 8)
// that is, the newest 8 bits, each at its own place in the byte. Then, with 8 x 8 matrices over
// GF(2) that belong to the phase (t mod phase_count):
//   2 and 4 bits  h = Recent(l) ^ older * Recent(l - 1) ^ oldest * Recent(l - 2)
//   3 bits        h = Recent(l) ^ older * High(g)       ^ oldest * Recent(l - 1)
// With a = the nibble of h that holds the newest symbol's field and b = the other nibble,
//   level = table[0][a] + table[1][b] + table[2][a ^ b],  a number in [-63, 63].
// One table lookup of 256 entries decodes it where the processor has one (VBMI), three of 16
// elsewhere.
#pragma once

#include <array>
#include <cstdint>

namespace hearth {

inline constexpr int kXtLevelOffset = 64;  // kernels hold a level as the byte level + 64

// Column j is the image of bit j.
using XtMatrix = std::array<uint8_t, 8>;

constexpr uint8_t XtApply(const XtMatrix& matrix, uint8_t byte) {
  uint8_t image = 0;
  for (uint32_t bit = 0; bit < 8; ++bit) {
    if ((byte >> bit & 1) != 0) image ^= matrix[bit];
  }
  return image;
}

struct XtCode {
  uint32_t bits = 0;
  uint32_t phase_count = 0;          // 2 at 4 bits, 4 at 2 bits, 8 at 3 bits
  std::array<XtMatrix, 8> older{};   // [phase]
  std::array<XtMatrix, 8> oldest{};  // [phase]; all zero when the window is 16 bits
  std::array<std::array<int8_t, 16>, 3> table{};
  float level_deviation = 0;  // level units per standard deviation of the weights, best for a
                              // Gaussian

  constexpr uint32_t field_bits() const { return bits == 3 ? 2 : bits; }
  constexpr uint32_t fields_per_byte() const { return 8 / field_bits(); }
  constexpr bool uses_oldest() const {
    for (const XtMatrix& matrix : oldest) {
      for (const uint8_t column : matrix) {
        if (column != 0) return true;
      }
    }
    return false;
  }
  // Whether the newest field of that phase lies in the high nibble of a byte.
  constexpr bool newest_is_high(uint32_t phase) const {
    return phase % fields_per_byte() >= fields_per_byte() / 2;
  }
  // h above, and the level of an h.
  constexpr uint8_t Hash(uint32_t phase, uint8_t recent, uint8_t older_byte,
                         uint8_t oldest_byte) const {
    return static_cast<uint8_t>(recent ^ XtApply(older[phase], older_byte) ^
                                XtApply(oldest[phase], oldest_byte));
  }
  // The image in h of bit `bit` of the symbol `age` steps before one of phase `phase`.
  constexpr uint8_t Column(uint32_t phase, uint32_t age, uint32_t bit) const {
    if (bits == 3 && bit == 2) return age < 8 ? older[phase][(phase + 8 - age) % 8] : 0;
    const uint32_t fields = fields_per_byte();
    const uint32_t byte = age / fields;
    if (byte > 2) return 0;
    const uint32_t place = (phase + 3 * fields - age) % fields * field_bits() + bit;
    if (byte == 0) return static_cast<uint8_t>(1u << place);
    if (bits == 3) return byte == 1 ? oldest[phase][place] : 0;
    return byte == 1 ? older[phase][place] : oldest[phase][place];
  }
  // The greatest age, at least 1, of that bit on which a level of any phase depends.
  constexpr uint32_t Depth(uint32_t bit) const {
    uint32_t depth = 1;
    for (uint32_t age = 1; age < 3 * fields_per_byte(); ++age) {
      for (uint32_t phase = 0; phase < phase_count; ++phase) {
        if (Column(phase, age, bit) != 0) depth = age;
      }
    }
    return depth;
  }
  constexpr int Level(uint32_t phase, uint8_t hash) const {
    const uint32_t high = hash >> 4;
    const uint32_t low = hash & 15;
    const uint32_t a = newest_is_high(phase) ? high : low;
    const uint32_t b = newest_is_high(phase) ? low : high;
    return table[0][a] + table[1][b] + table[2][a ^ b];
  }
};

// The code of a rate; `bits` is 2, 3 or 4. These are part of the format: a pack names them by its
// version. As constants: pack/format/xt_code_tables.h.
const XtCode& XtCodeOf(uint32_t bits);

}  // namespace hearth
