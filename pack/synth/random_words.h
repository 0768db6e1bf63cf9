// Reproducible random bytes, fast: word i of a stream is a function of (stream, i) alone, so that
// any part of a file can be made without what comes before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "runtime/base/prng.h"

namespace hearth {

// The stream that a seed and a name stand for.
constexpr uint64_t RandomStream(uint64_t seed, std::string_view name) {
  uint64_t stream = SplitMix64(seed);
  for (const char c : name) stream = SplitMix64(stream ^ static_cast<unsigned char>(c));
  return stream;
}

// Fills `out`, which begins at `begin_bytes` of the stream (a multiple of 8), with
// shape(word) for each 64-bit word; the last word may be cut.
template <class Shape>  // uint64_t(uint64_t)
void FillRandomWords(uint64_t stream, uint64_t begin_bytes, std::span<std::byte> out,
                     Shape&& shape) {
  const uint64_t first = stream + begin_bytes / sizeof(uint64_t);
  const size_t whole = out.size() / sizeof(uint64_t);
  for (size_t i = 0; i < whole; ++i) {
    const uint64_t word = shape(SplitMix64(first + i));
    std::memcpy(out.data() + i * sizeof(word), &word, sizeof(word));
  }
  const size_t rest = out.size() % sizeof(uint64_t);
  if (rest == 0) return;
  const uint64_t word = shape(SplitMix64(first + whole));
  std::memcpy(out.data() + whole * sizeof(word), &word, rest);
}

// [0, 1), from the low 24 bits of a word.
constexpr float UnitFloat(uint64_t word) { return static_cast<float>(word & 0xFFFFFF) * 0x1p-24f; }

// The same byte or 16-bit pattern in every place of a word.
constexpr uint64_t EveryByte(uint8_t byte) { return byte * 0x0101010101010101ull; }
constexpr uint64_t EveryHalf(uint16_t half) { return half * 0x0001000100010001ull; }

}  // namespace hearth
