#include "pack/quant/expert_bands.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "pack/format/float_codes.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint32_t kLineBytes = kBandRows * 4;       // one line of an NVFP4 sub-block
constexpr uint32_t kSubBlockBytes = 2 * kLineBytes;  // codes of one sub-block of a band
constexpr uint32_t kSubBlockRowBytes = kNvfp4BlockValues / 2;

// Eight nibbles n0..n7 in order become four bytes n0|n4<<4 .. n3|n7<<4, and back.
uint32_t PairNibbles(uint32_t line) {
  const auto spread = [](uint32_t x) {
    x = (x | (x << 8)) & 0x00FF00FFu;
    return (x | (x << 4)) & 0x0F0F0F0Fu;
  };
  return spread(line & 0xFFFFu) | (spread(line >> 16) << 4);
}

uint32_t UnpairNibbles(uint32_t line) {
  const auto gather = [](uint32_t x) {
    x = (x | (x >> 4)) & 0x00FF00FFu;
    return (x | (x >> 8)) & 0x0000FFFFu;
  };
  return gather(line & 0x0F0F0F0Fu) | (gather((line >> 4) & 0x0F0F0F0Fu) << 16);
}
static_assert(std::endian::native == std::endian::little);

// The formats with one element per value: element (row, k) goes to band row / 16, place k * 16 +
// row % 16.
template <class Stored, class Source, class Convert>
void Interleave(const BandShape& shape, std::span<const Source> source, std::span<std::byte> bands,
                Convert&& convert) {
  HEARTH_CHECK(source.size() == size_t{shape.rows} * shape.cols);
  HEARTH_CHECK(bands.size() == shape.bytes());
  std::fill(bands.begin(), bands.end(), std::byte{0});
  for (uint32_t row = 0; row < shape.rows; ++row) {
    std::byte* to =
        bands.data() + row / kBandRows * shape.band_bytes + row % kBandRows * sizeof(Stored);
    const Source* from = source.data() + size_t{row} * shape.cols;
    for (uint32_t k = 0; k < shape.cols; ++k) {
      const Stored stored = convert(from[k]);
      std::memcpy(to + size_t{k} * kBandRows * sizeof(Stored), &stored, sizeof(stored));
    }
  }
}

template <class Stored, class Target, class Convert>
void Deinterleave(const BandShape& shape, std::span<const std::byte> bands,
                  std::span<Target> target, Convert&& convert) {
  HEARTH_CHECK(target.size() == size_t{shape.rows} * shape.cols);
  HEARTH_CHECK(bands.size() == shape.bytes());
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const std::byte* from =
        bands.data() + row / kBandRows * shape.band_bytes + row % kBandRows * sizeof(Stored);
    Target* to = target.data() + size_t{row} * shape.cols;
    for (uint32_t k = 0; k < shape.cols; ++k) {
      Stored stored;
      std::memcpy(&stored, from + size_t{k} * kBandRows * sizeof(Stored), sizeof(stored));
      to[k] = convert(stored);
    }
  }
}

}  // namespace

BandShape ShapeOf(const ExpertLayout& layout, Projection projection) {
  return {.rows = layout.rows(projection),
          .cols = layout.cols(projection),
          .band_bytes = layout.band_bytes(projection)};
}

void InterleaveNvfp4(const BandShape& shape, std::span<const uint8_t> codes,
                     std::span<const uint8_t> scales, std::span<std::byte> bands) {
  const uint32_t blocks = shape.cols / kNvfp4BlockValues;
  HEARTH_CHECK(codes.size() == size_t{shape.rows} * shape.cols / 2);
  HEARTH_CHECK(scales.size() == size_t{shape.rows} * blocks);
  HEARTH_CHECK(bands.size() == shape.bytes());
  std::fill(bands.begin(), bands.end(), std::byte{0});
  for (uint32_t row = 0; row < shape.rows; ++row) {
    std::byte* band = bands.data() + row / kBandRows * shape.band_bytes;
    std::byte* band_scales = band + size_t{blocks} * kSubBlockBytes;
    const uint32_t r = row % kBandRows;
    const uint8_t* from = codes.data() + size_t{row} * shape.cols / 2;
    for (uint32_t block = 0; block < blocks; ++block) {
      for (uint32_t line = 0; line < 2; ++line) {
        uint32_t word;
        std::memcpy(&word, from + block * kSubBlockRowBytes + line * 4, sizeof(word));
        word = PairNibbles(word);
        std::memcpy(band + size_t{block} * kSubBlockBytes + line * kLineBytes + r * 4, &word,
                    sizeof(word));
      }
      band_scales[size_t{block} * kBandRows + r] =
          static_cast<std::byte>(scales[size_t{row} * blocks + block]);
    }
  }
}

void DeinterleaveNvfp4(const BandShape& shape, std::span<const std::byte> bands,
                       std::span<uint8_t> codes, std::span<uint8_t> scales) {
  const uint32_t blocks = shape.cols / kNvfp4BlockValues;
  HEARTH_CHECK(codes.size() == size_t{shape.rows} * shape.cols / 2);
  HEARTH_CHECK(scales.size() == size_t{shape.rows} * blocks);
  HEARTH_CHECK(bands.size() == shape.bytes());
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const std::byte* band = bands.data() + row / kBandRows * shape.band_bytes;
    const std::byte* band_scales = band + size_t{blocks} * kSubBlockBytes;
    const uint32_t r = row % kBandRows;
    uint8_t* to = codes.data() + size_t{row} * shape.cols / 2;
    for (uint32_t block = 0; block < blocks; ++block) {
      for (uint32_t line = 0; line < 2; ++line) {
        uint32_t word;
        std::memcpy(&word, band + size_t{block} * kSubBlockBytes + line * kLineBytes + r * 4,
                    sizeof(word));
        word = UnpairNibbles(word);
        std::memcpy(to + block * kSubBlockRowBytes + line * 4, &word, sizeof(word));
      }
      scales[size_t{row} * blocks + block] =
          std::to_integer<uint8_t>(band_scales[size_t{block} * kBandRows + r]);
    }
  }
}

void InterleaveFp8(const BandShape& shape, std::span<const uint8_t> codes,
                   std::span<std::byte> bands) {
  Interleave<uint8_t>(shape, codes, bands, [](uint8_t code) { return code; });
}

void DeinterleaveFp8(const BandShape& shape, std::span<const std::byte> bands,
                     std::span<uint8_t> codes) {
  Deinterleave<uint8_t>(shape, bands, codes, [](uint8_t code) { return code; });
}

uint64_t InterleaveBf16(const BandShape& shape, std::span<const float> values,
                        std::span<std::byte> bands) {
  uint64_t inexact = 0;
  Interleave<uint16_t>(shape, values, bands, [&inexact](float value) {
    const uint16_t code = EncodeBf16(value);
    inexact += std::bit_cast<uint32_t>(DecodeBf16(code)) != std::bit_cast<uint32_t>(value);
    return code;
  });
  return inexact;
}

void DeinterleaveBf16(const BandShape& shape, std::span<const std::byte> bands,
                      std::span<float> values) {
  Deinterleave<uint16_t>(shape, bands, values, [](uint16_t code) { return DecodeBf16(code); });
}

void InterleaveF32(const BandShape& shape, std::span<const float> values,
                   std::span<std::byte> bands) {
  Interleave<float>(shape, values, bands, [](float value) { return value; });
}

void DeinterleaveF32(const BandShape& shape, std::span<const std::byte> bands,
                     std::span<float> values) {
  Deinterleave<float>(shape, bands, values, [](float value) { return value; });
}

}  // namespace hearth
