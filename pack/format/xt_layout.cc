#include "pack/format/xt_layout.h"

#include <cmath>

namespace hearth {

uint32_t XtShape::group_of(uint32_t band) const {
  auto group = static_cast<uint32_t>(uint64_t{band} * group_count() / band_count());
  while (band >= group_begin(group + 1)) ++group;
  return group;
}

uint64_t XtShape::chunk_offset_bytes(uint32_t block, uint32_t band) const {
  const uint32_t group = group_of(band);
  const uint32_t begin = group_begin(group);
  const uint32_t bands = group_begin(group + 1) - begin;
  const uint64_t chunk = uint64_t{begin} * block_count() + uint64_t{block} * bands + (band - begin);
  return chunk * chunk_bytes();
}

uint32_t RotationBlock(uint32_t cols) {
  uint32_t block = 1;
  while (block < kRotationBlockMax && cols % (2 * block) == 0) block *= 2;
  return block;
}

uint32_t RotationSignBits(uint32_t first) {
  // SplitMix64's finaliser over the word index: a fixed sequence without structure.
  uint64_t z = (uint64_t{first / 32} + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

float RotationSign(uint32_t col) {
  return (RotationSignBits(col & ~31u) >> (col & 31) & 1) != 0 ? -1.0f : 1.0f;
}

float RotationFactor(uint32_t block) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
}

}  // namespace hearth
