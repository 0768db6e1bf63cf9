// Made-up experts: every format is filled wholly, reproducibly, with numbers only, of the size that
// the engine needs to stay finite.
#include "pack/synth/synthetic_expert.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "pack/convert/expert_repack.h"
#include "pack/format/float_codes.h"

namespace hearth {
namespace {

struct Format {
  const char* name;
  ExpertFormat format;
  XtBits bits;
};

void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

const Format kFormats[] = {{"nvfp4", ExpertFormat::kNvfp4, {}},
                           {"bf16", ExpertFormat::kBf16, {}},
                           {"fp8", ExpertFormat::kFp8, {}},
                           {"f32", ExpertFormat::kF32, {}},
                           {"xt2", ExpertFormat::kXt, XtBits::All(2)},
                           {"xt3", ExpertFormat::kXt, XtBits::All(3)},
                           {"xt433", ExpertFormat::kXt, {4, 3, 3}}};

constexpr ExpertKey kKey{LayerId(3), ExpertId(17)};

std::vector<std::byte> Blob(const ExpertLayout& layout, ExpertKey key, uint64_t seed,
                            std::byte before = std::byte{0xEE}) {
  std::vector<std::byte> blob(layout.blob_bytes(), before);
  FillSyntheticExpert(layout, key, seed, blob);
  return blob;
}

double Rms(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

class SyntheticExpert : public testing::TestWithParam<Format> {
 protected:
  ExpertLayout Layout(uint32_t hidden, uint32_t width) const {
    return *ExpertLayout::Create(GetParam().format, hidden, width, GetParam().bits);
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, SyntheticExpert, testing::ValuesIn(kFormats),
                         [](const auto& test) { return test.param.name; });

TEST_P(SyntheticExpert, IsAFunctionOfItsArgumentsAlone) {
  const ExpertLayout layout = Layout(96, 32);
  const std::vector<std::byte> blob = Blob(layout, kKey, 7);
  EXPECT_EQ(blob, Blob(layout, kKey, 7, std::byte{0x11})) << "every byte is written";
  EXPECT_NE(blob, Blob(layout, kKey, 8));
  EXPECT_NE(blob, Blob(layout, {LayerId(3), ExpertId(18)}, 7));
  EXPECT_NE(blob, Blob(layout, {LayerId(4), ExpertId(17)}, 7));
}

TEST_P(SyntheticExpert, HoldsNumbersOfTheSizeOfTrainedOnes) {
  const ExpertLayout layout = Layout(256, 128);
  SourceExpert values;
  DecodeExpertValues(layout, Blob(layout, kKey, 7), values);
  const auto check = [](const SourceMatrix& m, double deviation) {
    double sum = 0;
    for (const float v : m.values) {
      ASSERT_TRUE(std::isfinite(v));
      sum += v;
    }
    // BF16 is made to the next power of two.
    EXPECT_GT(Rms(m.values), deviation * 0.65);
    EXPECT_LT(Rms(m.values), deviation * 1.5);
    const auto count = static_cast<double>(m.values.size());
    EXPECT_LT(std::abs(sum / count), 5 * deviation / std::sqrt(count)) << "the mean is zero";
  };
  check(values.gate, 2 / std::sqrt(256.0));
  check(values.up, 2 / std::sqrt(256.0));
  check(values.down, 1 / std::sqrt(128.0));
}

TEST_P(SyntheticExpert, RowsOfTheSameProjectionDiffer) {
  const ExpertLayout layout = Layout(64, 64);
  SourceExpert values;
  DecodeExpertValues(layout, Blob(layout, kKey, 7), values);
  EXPECT_NE(values.gate.values, values.up.values);
  for (const SourceMatrix* m : {&values.gate, &values.up, &values.down}) {
    const auto row = [m](uint32_t r) {
      const auto begin = m->values.begin() + static_cast<int64_t>(r) * m->cols;
      return std::vector<float>(begin, begin + m->cols);
    };
    for (uint32_t r = 1; r < m->rows; ++r) EXPECT_NE(row(r), row(r - 1)) << r;
  }
}

// A width of 24 leaves half of the last band of gate and up empty: what a packer makes of a decoded
// expert has zeros there, and so must this.
TEST(SyntheticExpertPadding, IsZero) {
  for (const ExpertFormat format : {ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
    const ExpertLayout layout = *ExpertLayout::Create(format, 40, 24);
    const std::vector<std::byte> blob = Blob(layout, kKey, 7);
    SourceExpert source;
    UnpackExpert(layout, blob, source);
    std::vector<std::byte> again(blob.size(), std::byte{0xEE});
    RepackStats stats;
    ASSERT_TRUE(PackExpert(layout, source, again, stats).ok());
    EXPECT_EQ(blob, again) << ExpertFormatName(format);
  }
}

TEST(SyntheticExpertPadding, OfXtScalesIsZero) {
  const ExpertLayout layout = *ExpertLayout::Create(ExpertFormat::kXt, 96, 32, XtBits::All(3));
  const std::vector<std::byte> blob = Blob(layout, kKey, 7);
  for (const Projection p : kProjections) {
    const XtShape shape = layout.xt_shape(p);
    const uint64_t scales = layout.projection_offset_bytes(p) + shape.scale_offset_bytes();
    for (uint64_t at = scales + shape.rows * 2;
         at < layout.projection_offset_bytes(p) + shape.bytes(); ++at) {
      EXPECT_EQ(blob[at], std::byte{0}) << at;
    }
  }
}

// NVFP4 blobs say the same through the packer's own way in and out.
TEST(SyntheticExpertNvfp4, SurvivesUnpackingAndPacking) {
  const ExpertLayout layout = *ExpertLayout::Create(ExpertFormat::kNvfp4, 80, 48);
  const std::vector<std::byte> blob = Blob(layout, kKey, 7);
  SourceExpert source;
  UnpackExpert(layout, blob, source);
  std::vector<std::byte> again(blob.size(), std::byte{0xEE});
  RepackStats stats;
  ASSERT_TRUE(PackExpert(layout, source, again, stats).ok());
  EXPECT_EQ(blob, again);
}

}  // namespace
}  // namespace hearth
