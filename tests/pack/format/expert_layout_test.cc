// Sizes and places inside an expert blob: the real model's numbers, alignment, no overlap, no gap
// that a kernel could read past.
#include "pack/format/expert_layout.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pack/format/matrix_layout.h"

namespace hearth {
namespace {

ExpertLayout Make(ExpertFormat format, uint32_t hidden, uint32_t width, XtBits xt_bits = {}) {
  const absl::StatusOr<ExpertLayout> layout = ExpertLayout::Create(format, hidden, width, xt_bits);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.value_or(ExpertLayout{});
}

TEST(ExpertLayout, FullModelInNvfp4) {
  const ExpertLayout layout = Make(ExpertFormat::kNvfp4, 2560, 640);
  EXPECT_EQ(layout.band_bytes(Projection::kGate), 23040u);  // 2560 * 16 / 2 codes, / 16 scales
  EXPECT_EQ(layout.band_bytes(Projection::kDown), 5760u);
  EXPECT_EQ(layout.projection_offset_bytes(Projection::kUp), 921600u);
  EXPECT_EQ(layout.projection_offset_bytes(Projection::kDown), 1843200u);
  EXPECT_EQ(layout.trailer_offset_bytes(), 2764800u);
  EXPECT_EQ(layout.blob_bytes(), 2764816u);
  EXPECT_EQ(layout.stride_bytes(), 2768896u);
  EXPECT_EQ(layout.scale_offset_bytes(Projection::kGate), 2764800u);
  EXPECT_EQ(layout.scale_offset_bytes(Projection::kUp), 2764804u);
  EXPECT_EQ(layout.scale_offset_bytes(Projection::kDown), 2764808u);
}

TEST(ExpertLayout, FullModelInTheOtherFormats) {
  EXPECT_EQ(Make(ExpertFormat::kBf16, 2560, 640).blob_bytes(), 3u * 2560 * 640 * 2);
  EXPECT_EQ(Make(ExpertFormat::kF32, 2560, 640).blob_bytes(), 3u * 2560 * 640 * 4);
  EXPECT_EQ(Make(ExpertFormat::kFp8, 2560, 640).blob_bytes(), 3u * 2560 * 640 + 3u * 20 * 5 * 4);
}

TEST(ExpertLayout, FullModelInXt) {
  // Codes, a fp16 scale for each row of a projection, three multipliers.
  const uint64_t scale_bytes = (640 + 640 + 2560) * 2;
  for (const uint8_t bits : {2, 3, 4}) {
    const ExpertLayout layout = Make(ExpertFormat::kXt, 2560, 640, XtBits::All(bits));
    EXPECT_EQ(layout.blob_bytes(), 3u * 2560 * 640 * bits / 8 + scale_bytes + 16);
  }
  const ExpertLayout mixed = Make(ExpertFormat::kXt, 2560, 640, {4, 2, 3});
  EXPECT_EQ(mixed.projection_offset_bytes(Projection::kUp), 2560u * 640 / 2 + 640 * 2);
  EXPECT_EQ(mixed.projection_bytes(Projection::kUp), 2560u * 640 / 4 + 640 * 2);
  EXPECT_EQ(mixed.projection_bytes(Projection::kDown), 2560u * 640 * 3 / 8 + 2560 * 2);
  EXPECT_EQ(mixed.scale_offset_bytes(Projection::kDown), mixed.trailer_offset_bytes() + 8);
}

TEST(ExpertLayout, RowsAreOutputsAndColsTheReduction) {
  const ExpertLayout layout = Make(ExpertFormat::kBf16, 32, 48);
  EXPECT_EQ(layout.rows(Projection::kGate), 48u);
  EXPECT_EQ(layout.cols(Projection::kGate), 32u);
  EXPECT_EQ(layout.rows(Projection::kUp), 48u);
  EXPECT_EQ(layout.cols(Projection::kUp), 32u);
  EXPECT_EQ(layout.rows(Projection::kDown), 32u);
  EXPECT_EQ(layout.cols(Projection::kDown), 48u);
}

struct Part {
  uint64_t begin = 0;
  uint64_t end = 0;
};

std::vector<Part> PartsOf(const ExpertLayout& layout) {
  std::vector<Part> parts;
  for (const Projection p : kProjections) {
    const uint64_t begin = layout.projection_offset_bytes(p);
    parts.push_back({begin, begin + layout.projection_bytes(p)});
  }
  if (layout.format == ExpertFormat::kNvfp4 || layout.format == ExpertFormat::kXt) {
    for (const Projection p : kProjections) {
      parts.push_back({layout.scale_offset_bytes(p), layout.scale_offset_bytes(p) + 4});
    }
  }
  if (layout.format == ExpertFormat::kFp8) {
    for (const Projection p : kProjections) {
      const uint64_t blocks =
          uint64_t{(layout.rows(p) + 127) / 128} * ((layout.cols(p) + 127) / 128);
      const uint64_t begin = layout.scale_offset_bytes(p);
      parts.push_back({begin, begin + 4 * blocks});
    }
  }
  return parts;
}

// What one band must hold, from the header's table; XT: its share of the projection.
uint64_t BandPayloadBytes(const ExpertLayout& layout, Projection p) {
  const uint64_t values = uint64_t{16} * layout.cols(p);
  switch (layout.format) {
    case ExpertFormat::kNvfp4:
      return values / 2 + values / 16;
    case ExpertFormat::kBf16:
      return values * 2;
    case ExpertFormat::kFp8:
      return values;
    case ExpertFormat::kF32:
      return values * 4;
    case ExpertFormat::kXt:
      return values * layout.xt_bits.of(p) / 8 + 16 * 2;
  }
  return 0;
}

TEST(ExpertLayout, PartsFitAreAlignedAndDoNotOverlap) {
  for (const ExpertFormat format : {ExpertFormat::kNvfp4, ExpertFormat::kBf16, ExpertFormat::kFp8,
                                    ExpertFormat::kF32, ExpertFormat::kXt}) {
    const bool xt = format == ExpertFormat::kXt;
    const uint32_t block = format == ExpertFormat::kNvfp4 ? 16 : xt ? 32 : 1;
    for (const uint32_t hidden : {1u, 7u, 16u, 48u, 127u, 129u, 256u, 2560u}) {
      for (const uint32_t width : {1u, 5u, 16u, 32u, 130u, 640u}) {
        if (hidden % block != 0 || width % block != 0) continue;
        const ExpertLayout layout = Make(format, hidden, width, xt ? XtBits{2, 3, 4} : XtBits{});
        SCOPED_TRACE(std::string(ExpertFormatName(format)) + " " + std::to_string(hidden) + " x " +
                     std::to_string(width));
        for (const Projection p : kProjections) {
          const uint64_t parts = xt ? 1 : BandCount(layout.rows(p));
          const uint64_t payload =
              BandPayloadBytes(layout, p) * (xt ? BandCount(layout.rows(p)) : 1);
          const uint64_t bytes = layout.projection_bytes(p) / parts;
          EXPECT_EQ(layout.projection_bytes(p), bytes * parts);
          EXPECT_GE(bytes, payload);
          EXPECT_LT(bytes, payload + 64);
          EXPECT_EQ(bytes % 64, 0u);
          if (!xt) {
            EXPECT_EQ(bytes, layout.band_bytes(p));
          }
          EXPECT_EQ(layout.projection_offset_bytes(p) % 64, 0u);
        }
        EXPECT_EQ(layout.trailer_offset_bytes() % 64, 0u);
        const std::vector<Part> parts = PartsOf(layout);
        EXPECT_EQ(parts.front().begin, 0u);
        for (size_t i = 1; i < parts.size(); ++i) EXPECT_EQ(parts[i].begin, parts[i - 1].end);
        EXPECT_LE(parts.back().end, layout.blob_bytes());
        EXPECT_LE(layout.blob_bytes(), parts.back().end + 4);  // the trailer's zero word
        EXPECT_EQ(layout.stride_bytes() % 4096, 0u);
        EXPECT_GE(layout.stride_bytes(), layout.blob_bytes());
        EXPECT_LT(layout.stride_bytes(), layout.blob_bytes() + 4096);
      }
    }
  }
}

TEST(ExpertLayout, SizesBeyond32BitsAreExact) {
  const ExpertLayout layout = Make(ExpertFormat::kF32, 1u << 20, 1u << 16);
  EXPECT_EQ(layout.blob_bytes(), uint64_t{3} << 38);
}

TEST(ExpertLayout, RefusesLengthsThatTheFormatCannotHold) {
  const auto refused = [](ExpertFormat format, uint32_t hidden, uint32_t width) {
    return std::string(ExpertLayout::Create(format, hidden, width).status().message());
  };
  EXPECT_THAT(refused(ExpertFormat::kNvfp4, 40, 16), ::testing::HasSubstr("hidden 40"));
  EXPECT_THAT(refused(ExpertFormat::kNvfp4, 32, 15), ::testing::HasSubstr("width 15"));
  EXPECT_THAT(refused(ExpertFormat::kBf16, 0, 16), ::testing::HasSubstr("positive"));
  EXPECT_THAT(refused(ExpertFormat::kF32, 16, 0), ::testing::HasSubstr("positive"));
}

TEST(ExpertLayout, XtBitsBelongToXtAlone) {
  const auto refused = [](ExpertFormat format, uint32_t hidden, uint32_t width, XtBits bits) {
    return std::string(ExpertLayout::Create(format, hidden, width, bits).status().message());
  };
  EXPECT_THAT(refused(ExpertFormat::kXt, 48, 32, XtBits::All(3)), ::testing::HasSubstr("of 32"));
  EXPECT_THAT(refused(ExpertFormat::kXt, 32, 16, XtBits::All(3)), ::testing::HasSubstr("width 16"));
  EXPECT_THAT(refused(ExpertFormat::kXt, 32, 32, {}), ::testing::HasSubstr("0 bits"));
  EXPECT_THAT(refused(ExpertFormat::kXt, 32, 32, {3, 5, 2}), ::testing::HasSubstr("5 bits"));
  EXPECT_THAT(refused(ExpertFormat::kXt, 32, 32, {3, 3, 1}), ::testing::HasSubstr("1 bits"));
  EXPECT_THAT(refused(ExpertFormat::kNvfp4, 32, 32, {3, 3, 3}), ::testing::HasSubstr("nvfp4"));
}

TEST(MatrixLayout, BytesOfEachFormat) {
  EXPECT_EQ(MatrixBytes(MatrixFormat::kF32, 3, 5), 60u);
  EXPECT_EQ(MatrixBytes(MatrixFormat::kBf16, 3, 5), 30u);
  // Two blocks of 32 columns; 16 rows of 32 codes and an fp16 scale each.
  EXPECT_EQ(Q8BandBytes(64), 2u * 16 * 34);
  EXPECT_EQ(MatrixBytes(MatrixFormat::kQ8, 16, 64), 1088u);
  EXPECT_EQ(MatrixBytes(MatrixFormat::kQ8, 17, 64), 2176u);  // rows are padded to whole bands
  EXPECT_EQ(MatrixBytes(MatrixFormat::kF32, 1u << 20, 1u << 20), uint64_t{1} << 42);
}

TEST(FormatNames, AreThoseOfTheCommandLine) {
  EXPECT_STREQ(ExpertFormatName(ExpertFormat::kNvfp4), "nvfp4");
  EXPECT_STREQ(ExpertFormatName(ExpertFormat::kBf16), "bf16");
  EXPECT_STREQ(ExpertFormatName(ExpertFormat::kFp8), "fp8");
  EXPECT_STREQ(ExpertFormatName(ExpertFormat::kF32), "f32");
  EXPECT_STREQ(ExpertFormatName(ExpertFormat::kXt), "xt");
  EXPECT_EQ(ExpertLayoutName(Make(ExpertFormat::kNvfp4, 32, 32)), "nvfp4");
  EXPECT_EQ(ExpertLayoutName(Make(ExpertFormat::kXt, 32, 32, XtBits::All(3))), "xt3");
  EXPECT_EQ(ExpertLayoutName(Make(ExpertFormat::kXt, 32, 32, {4, 4, 2})), "xt4-4-2");
  EXPECT_STREQ(MatrixFormatName(MatrixFormat::kF32), "f32");
  EXPECT_STREQ(MatrixFormatName(MatrixFormat::kBf16), "bf16");
  EXPECT_STREQ(MatrixFormatName(MatrixFormat::kQ8), "q8_0");
}

}  // namespace
}  // namespace hearth
