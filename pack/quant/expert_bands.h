// Row-major expert matrices to the interleaved bands of pack/format/expert_layout.h, and back. All
// are permutations of bits: the inverse returns what went in, which is how a pack is proved equal
// to its source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pack/format/expert_layout.h"

namespace hearth {

// One projection within a blob: `rows` x `cols`, bands of `band_bytes`.
struct BandShape {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t band_bytes = 0;
  uint64_t bytes() const { return BandCount(rows) * band_bytes; }
};

BandShape ShapeOf(const ExpertLayout& layout, Projection projection);

// NVFP4. codes: (rows, cols / 2), even element in the low nibble; scales: (rows, cols / 16) E4M3.
// `bands` is shape.bytes() long and written whole: padding rows and alignment become zeros.
void InterleaveNvfp4(const BandShape& shape, std::span<const uint8_t> codes,
                     std::span<const uint8_t> scales, std::span<std::byte> bands);
void DeinterleaveNvfp4(const BandShape& shape, std::span<const std::byte> bands,
                       std::span<uint8_t> codes, std::span<uint8_t> scales);

// FP8: codes (rows, cols).
void InterleaveFp8(const BandShape& shape, std::span<const uint8_t> codes,
                   std::span<std::byte> bands);
void DeinterleaveFp8(const BandShape& shape, std::span<const std::byte> bands,
                     std::span<uint8_t> codes);

// BF16 from fp32, to nearest even; returns how many values BF16 does not hold exactly.
uint64_t InterleaveBf16(const BandShape& shape, std::span<const float> values,
                        std::span<std::byte> bands);
void DeinterleaveBf16(const BandShape& shape, std::span<const std::byte> bands,
                      std::span<float> values);

void InterleaveF32(const BandShape& shape, std::span<const float> values,
                   std::span<std::byte> bands);
void DeinterleaveF32(const BandShape& shape, std::span<const std::byte> bands,
                     std::span<float> values);

}  // namespace hearth
