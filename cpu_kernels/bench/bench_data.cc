#include "cpu_kernels/bench/bench_data.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

constexpr uint64_t kSeed = 2;
constexpr float kMultiplier = 0.01f;  // of a whole projection, or of a block

void FillWords(uint64_t keep_bits, uint64_t set_bits, std::span<std::byte> into) {
  Prng prng(kSeed);
  for (size_t i = 0; i < into.size(); i += sizeof(uint64_t)) {
    const uint64_t word = (prng.Next() & keep_bits) | set_bits;
    std::memcpy(into.data() + i, &word, std::min(sizeof(word), into.size() - i));
  }
}

// E4M3 from 2^-2 to 2^2.
void FillNvfp4Scales(std::span<std::byte> scales) {
  Prng prng(kSeed + 1);
  for (std::byte& scale : scales) scale = static_cast<std::byte>(0x28 + prng.Below(32));
}

// Around 2^-8.
void FillFp16Scales(std::span<std::byte> scales) {
  FillWords(0x03FF03FF03FF03FFu, 0x1C001C001C001C00u, scales);
}

// The scales that stand beside the codes of a projection.
void FillScales(const ExpertLayout& layout, Projection p, std::span<std::byte> blob) {
  const uint64_t begin = layout.projection_offset_bytes(p);
  if (layout.format == ExpertFormat::kXt) {
    const XtShape shape = layout.xt_shape(p);
    FillFp16Scales(blob.subspan(begin + shape.scale_offset_bytes(),
                                shape.bytes() - shape.scale_offset_bytes()));
  }
  if (layout.format == ExpertFormat::kNvfp4) {
    const uint64_t code_bytes = uint64_t{layout.cols(p)} * kBandRows / 2;
    for (uint32_t band = 0; band < BandCount(layout.rows(p)); ++band) {
      const uint64_t at = begin + band * layout.band_bytes(p) + code_bytes;
      FillNvfp4Scales(blob.subspan(at, layout.cols(p)));
    }
  }
}

}  // namespace

void FillFloats(std::span<std::byte> into) {
  Prng prng(kSeed);
  for (size_t i = 0; i + sizeof(float) <= into.size(); i += sizeof(float)) {
    const auto value = static_cast<float>(prng.Uniform() * 0.2 - 0.1);
    std::memcpy(into.data() + i, &value, sizeof(value));
  }
}

void FillMatrix(MatrixFormat format, uint32_t cols, std::span<std::byte> into) {
  switch (format) {
    case MatrixFormat::kF32:
      return FillWords(0x81FFFFFF81FFFFFFu, 0x3C0000003C000000u, into);
    case MatrixFormat::kBf16:
      return FillWords(0x81FF81FF81FF81FFu, 0x3C003C003C003C00u, into);
    case MatrixFormat::kQ8:
      break;
  }
  FillWords(kAnyBits, 0, into);
  const uint64_t scale_bytes = uint64_t{cols / kQ8BlockValues} * kBandRows * 2;
  for (uint64_t end = Q8BandBytes(cols); end <= into.size(); end += Q8BandBytes(cols)) {
    FillFp16Scales(into.subspan(end - scale_bytes, scale_bytes));
  }
}

void FillExpert(const BenchedFormat& format, const ExpertLayout& layout,
                std::span<std::byte> into) {
  const uint64_t codes_end = layout.trailer_offset_bytes();
  FillWords(format.keep_bits, format.set_bits, into.first(codes_end));
  for (uint64_t i = codes_end; i + sizeof(float) <= into.size(); i += sizeof(float)) {
    std::memcpy(into.data() + i, &kMultiplier, sizeof(float));
  }
  for (const Projection p : kProjections) FillScales(layout, p, into);
}

}  // namespace hearth
