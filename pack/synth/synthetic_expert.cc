#include "pack/synth/synthetic_expert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "pack/format/float_codes.h"
#include "pack/format/xt_code.h"
#include "pack/synth/random_words.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

// Standard deviation of a weight, times the square root of the reduction length.
constexpr float kInputGain = 2.0f;
constexpr float kOutputGain = 1.0f;

// NVFP4: any nibble. Block scales: E4M3 codes 0x30 to 0x3F, 0.5 to 1.875.
constexpr uint64_t kNvfp4ScaleMask = EveryByte(0x0F);
constexpr uint64_t kNvfp4ScaleBase = EveryByte(0x30);
// FP8: every code whose exponent is at most 7, so never a NaN; up to 1.875.
constexpr uint64_t kFp8Mask = EveryByte(0xBF);
// BF16: a random sign, the two low exponent bits and the mantissa; the exponent is then raised.
constexpr uint64_t kBf16Mask = EveryHalf(0x81FF);
constexpr float kBf16Rms = 7.0445f;  // of 2^{0..3} (1 + m/128), about

template <class Decode>
float RmsOf(uint32_t first, uint32_t count, uint32_t mask, Decode&& decode) {
  double sum = 0;
  for (uint32_t code = first; code < first + count; ++code) {
    const double value = decode(static_cast<uint8_t>(code & mask));
    sum += value * value;
  }
  return static_cast<float>(std::sqrt(sum / count));
}

class Filling {
 public:
  Filling(const ExpertLayout& layout, uint64_t stream, std::span<std::byte> blob)
      : layout_(layout), stream_(stream), blob_(blob) {}

  void Run() {
    if (layout_.format != ExpertFormat::kXt) {
      for (const Projection p : kProjections) FillBands(p);
    } else {
      for (const Projection p : kProjections) FillXt(p);
    }
    FillTrailer();
  }

 private:
  float Deviation(Projection p) const {
    const float gain = p == Projection::kDown ? kOutputGain : kInputGain;
    return gain / std::sqrt(static_cast<float>(layout_.cols(p)));
  }

  template <class Shape>
  void Fill(uint64_t begin_bytes, uint64_t count_bytes, Shape&& shape) {
    FillRandomWords(stream_, begin_bytes, blob_.subspan(begin_bytes, count_bytes), shape);
  }
  void Zero(uint64_t begin_bytes, uint64_t end_bytes) {
    std::fill(blob_.begin() + static_cast<int64_t>(begin_bytes),
              blob_.begin() + static_cast<int64_t>(end_bytes), std::byte{0});
  }
  // A random number in [0.75, 1.25) that belongs to a place in the blob.
  float ScaleAt(uint64_t at_bytes) const {
    return 0.75f + 0.5f * UnitFloat(SplitMix64(~stream_ + at_bytes));
  }
  template <class T>
  void Put(uint64_t at_bytes, T value) {
    std::memcpy(blob_.data() + at_bytes, &value, sizeof(value));
  }

  void FillBands(Projection p) {
    const uint64_t band_bytes = layout_.band_bytes(p);
    const uint32_t bands = BandCount(layout_.rows(p));
    const uint32_t last_rows = layout_.rows(p) - (bands - 1) * kBandRows;
    for (uint32_t band = 0; band < bands; ++band) {
      const uint64_t begin = layout_.projection_offset_bytes(p) + band * band_bytes;
      const uint64_t end = FillBand(p, begin);
      Zero(end, begin + band_bytes);
      if (band + 1 == bands && last_rows < kBandRows) ZeroPaddingRows(p, begin, last_rows);
    }
  }

  // Returns where the band's data ends.
  uint64_t FillBand(Projection p, uint64_t begin) {
    const uint64_t values = uint64_t{layout_.cols(p)} * kBandRows;
    switch (layout_.format) {
      case ExpertFormat::kNvfp4: {
        const uint64_t scales = values / kNvfp4BlockValues;
        Fill(begin, values / 2, [](uint64_t word) { return word; });
        Fill(begin + values / 2, scales,
             [](uint64_t word) { return (word & kNvfp4ScaleMask) | kNvfp4ScaleBase; });
        return begin + values / 2 + scales;
      }
      case ExpertFormat::kFp8:
        Fill(begin, values, [](uint64_t word) { return word & kFp8Mask; });
        return begin + values;
      case ExpertFormat::kBf16: {
        const auto exponent =
            static_cast<uint16_t>(127 + std::lround(std::log2(Deviation(p) / kBf16Rms)));
        const uint64_t raise = EveryHalf(static_cast<uint16_t>(exponent << 7));
        Fill(begin, values * 2, [raise](uint64_t word) { return (word & kBf16Mask) + raise; });
        return begin + values * 2;
      }
      case ExpertFormat::kF32: {
        const float half_range = Deviation(p) * 1.7320508f;
        Fill(begin, values * 4, [half_range](uint64_t word) {
          const std::array<float, 2> pair = {(2 * UnitFloat(word) - 1) * half_range,
                                             (2 * UnitFloat(word >> 32) - 1) * half_range};
          return std::bit_cast<uint64_t>(pair);
        });
        return begin + values * 4;
      }
      case ExpertFormat::kXt:
        break;
    }
    HEARTH_CHECK(false);
  }

  // Rows from `row_begin` on of a band, wherever its layout interleaves them.
  void ZeroPaddingRows(Projection p, uint64_t begin, uint32_t row_begin) {
    const auto zero_lanes = [&](uint64_t from, uint64_t line_count, uint64_t row_bytes) {
      for (uint64_t line = 0; line < line_count; ++line) {
        const uint64_t at = from + line * kBandRows * row_bytes;
        Zero(at + row_begin * row_bytes, at + kBandRows * row_bytes);
      }
    };
    const uint64_t cols = layout_.cols(p);
    switch (layout_.format) {
      case ExpertFormat::kNvfp4:
        zero_lanes(begin, cols / 8, 4);
        zero_lanes(begin + cols * kBandRows / 2, cols / kNvfp4BlockValues, 1);
        return;
      case ExpertFormat::kFp8:
        return zero_lanes(begin, cols, 1);
      case ExpertFormat::kBf16:
        return zero_lanes(begin, cols, 2);
      case ExpertFormat::kF32:
        return zero_lanes(begin, cols, 4);
      case ExpertFormat::kXt:
        return;
    }
  }

  void FillXt(Projection p) {
    const XtShape shape = layout_.xt_shape(p);
    const uint64_t begin = layout_.projection_offset_bytes(p);
    Fill(begin, shape.code_bytes(), [](uint64_t word) { return word; });
    const uint64_t scales = begin + shape.scale_offset_bytes();
    Zero(scales, begin + shape.bytes());
    for (uint32_t row = 0; row < shape.rows; ++row) {
      Put(scales + row * 2, EncodeFp16(ScaleAt(scales + row * 2)));
    }
  }

  void FillTrailer() {
    Zero(layout_.trailer_offset_bytes(), layout_.blob_bytes());
    for (const Projection p : kProjections) {
      if (layout_.format == ExpertFormat::kNvfp4) {
        const float rms = RmsOf(0, 16, 15, DecodeE2m1) * RmsOf(0x30, 16, 0x3F, DecodeE4m3);
        Put(layout_.scale_offset_bytes(p), Deviation(p) / rms);
      } else if (layout_.format == ExpertFormat::kXt) {
        const float levels = XtCodeOf(layout_.xt_bits.of(p)).level_deviation;
        Put(layout_.scale_offset_bytes(p), Deviation(p) / levels);
      } else if (layout_.format == ExpertFormat::kFp8) {
        FillFp8Scales(p);
      }
    }
  }

  void FillFp8Scales(Projection p) {
    const auto blocks = [](uint32_t n) { return (n + kFp8BlockValues - 1) / kFp8BlockValues; };
    const float scale = Deviation(p) / RmsOf(0, 256, 0xBF, DecodeE4m3);
    const uint32_t count = blocks(layout_.rows(p)) * blocks(layout_.cols(p));
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t at = layout_.scale_offset_bytes(p) + uint64_t{i} * sizeof(float);
      Put(at, scale * ScaleAt(at));
    }
  }

  const ExpertLayout& layout_;
  const uint64_t stream_;
  const std::span<std::byte> blob_;
};

}  // namespace

void FillSyntheticExpert(const ExpertLayout& layout, ExpertKey key, uint64_t seed,
                         std::span<std::byte> blob) {
  HEARTH_CHECK(blob.size() == layout.blob_bytes());
  const uint64_t place = uint64_t{key.layer.value} << 32 | key.expert.value;
  const uint64_t stream = SplitMix64(SplitMix64(seed ^ 0x5E6D7A8B9CADBECFull) ^ place);
  Filling(layout, stream, blob).Run();
}

}  // namespace hearth
