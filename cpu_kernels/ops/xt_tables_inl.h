// Lookup tables of the XT codes (pack/format/xt_code.h) in the forms that the kernels read,
// computed by the compiler. Shared by the instruction sets; each has its own copy.
#pragma once

#include <array>
#include <cstdint>

#include "pack/format/xt_code_tables.h"

namespace hearth {
namespace {

constexpr const XtCode& XtCodeOfBits(uint32_t bits) {
  return bits == 2 ? kXt2 : (bits == 3 ? kXt3 : kXt4);
}

struct XtTables {
  // [newest field in the high nibble][hash]: level + kXtLevelOffset.
  alignas(64) std::array<std::array<uint8_t, 256>, 2> byte_of_hash{};
  // The same as three tables of nibbles; the first has the offset in it.
  alignas(64) std::array<std::array<uint8_t, 16>, 3> byte_of_nibbles{};
  // [phase][low, high nibble of the byte]: its image under the matrices.
  std::array<std::array<std::array<uint8_t, 16>, 2>, 8> older_of_nibble{};
  std::array<std::array<std::array<uint8_t, 16>, 2>, 8> oldest_of_nibble{};
  // [phase]: operand of gf2p8affineqb, whose byte 7 - i has the bits that make up bit i.
  std::array<uint64_t, 8> older_affine{};
  std::array<uint64_t, 8> oldest_affine{};
  // [phase][low six bits of the byte]: its image, where the matrix ignores the other two.
  alignas(64) std::array<std::array<uint8_t, 64>, 8> oldest_of_low{};
};

constexpr uint64_t XtAffine(const XtMatrix& matrix) {
  uint64_t operand = 0;
  for (uint32_t row = 0; row < 8; ++row) {
    for (uint32_t column = 0; column < 8; ++column) {
      operand |= uint64_t{matrix[column] >> row & 1u} << ((7 - row) * 8 + column);
    }
  }
  return operand;
}

constexpr XtTables MakeXtTables(const XtCode& code) {
  XtTables tables;
  const uint32_t low_phase = 0;
  const uint32_t high_phase = code.fields_per_byte() - 1;
  for (uint32_t hash = 0; hash < 256; ++hash) {
    const auto byte_of = [&](uint32_t phase) {
      return static_cast<uint8_t>(code.Level(phase, static_cast<uint8_t>(hash)) + kXtLevelOffset);
    };
    tables.byte_of_hash[0][hash] = byte_of(low_phase);
    tables.byte_of_hash[1][hash] = byte_of(high_phase);
  }
  for (uint32_t nibble = 0; nibble < 16; ++nibble) {
    for (uint32_t t = 0; t < 3; ++t) {
      tables.byte_of_nibbles[t][nibble] =
          static_cast<uint8_t>(code.table[t][nibble] + (t == 0 ? kXtLevelOffset : 0));
    }
    for (uint32_t phase = 0; phase < code.phase_count; ++phase) {
      for (uint32_t half = 0; half < 2; ++half) {
        const auto byte = static_cast<uint8_t>(nibble << half * 4);
        tables.older_of_nibble[phase][half][nibble] = XtApply(code.older[phase], byte);
        tables.oldest_of_nibble[phase][half][nibble] = XtApply(code.oldest[phase], byte);
      }
    }
  }
  for (uint32_t phase = 0; phase < code.phase_count; ++phase) {
    tables.older_affine[phase] = XtAffine(code.older[phase]);
    tables.oldest_affine[phase] = XtAffine(code.oldest[phase]);
    for (uint32_t low = 0; low < 64; ++low) {
      tables.oldest_of_low[phase][low] = XtApply(code.oldest[phase], static_cast<uint8_t>(low));
    }
  }
  return tables;
}

template <uint32_t kBits>
constexpr XtTables kXtTables = MakeXtTables(XtCodeOfBits(kBits));

}  // namespace
}  // namespace hearth
