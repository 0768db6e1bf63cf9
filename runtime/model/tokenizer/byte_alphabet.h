// The printable stand-ins for bytes that byte-level BPE vocabularies are written in: a byte that is
// a printable Latin-1 character stands for itself, the other 68 take U+0100 upwards in order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth {

inline constexpr char32_t kByteAlphabetEnd = 0x144;  // one past the greatest stand-in

constexpr bool IsItsOwnStandIn(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Stand-in code point to byte; -1 where the code point stands for nothing.
constexpr std::array<int16_t, kByteAlphabetEnd> MakeByteAlphabet() {
  std::array<int16_t, kByteAlphabetEnd> byte_of{};
  for (int16_t& b : byte_of) b = -1;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    byte_of[IsItsOwnStandIn(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}
inline constexpr std::array<int16_t, kByteAlphabetEnd> kByteOfStandIn = MakeByteAlphabet();
static_assert(kByteOfStandIn[0x120] == 0x20 && kByteOfStandIn[0x10A] == 0x0A);
static_assert(kByteOfStandIn[0x143] == 0xAD && kByteOfStandIn['!'] == '!');

constexpr std::optional<uint8_t> ByteOfStandIn(char32_t code_point) {
  if (code_point >= kByteAlphabetEnd || kByteOfStandIn[code_point] < 0) return std::nullopt;
  return static_cast<uint8_t>(kByteOfStandIn[code_point]);
}

}  // namespace hearth
