// The benchmark's bytes are weights that could come from a model: finite, and never subnormal,
// which some processors compute at another speed.
#include "cpu_kernels/bench/bench_data.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/load.h"

namespace hearth {
namespace {

constexpr uint32_t kHidden = 96;
constexpr uint32_t kWidth = 32;

bool IsOrdinary(float value) {
  return std::isfinite(value) && std::fpclassify(value) != FP_SUBNORMAL;
}

TEST(BenchDataTest, FloatsAreOrdinaryAndDiffer) {
  std::vector<std::byte> bytes(4096);
  FillFloats(bytes);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    EXPECT_TRUE(IsOrdinary(Load<float>(&bytes[i]))) << i;
  }
  EXPECT_NE(Load<float>(bytes.data()), Load<float>(&bytes[4]));
}

TEST(BenchDataTest, EveryExpertFormatOfPacksIsBenched) {
  for (uint32_t value = 1; value < 64; ++value) {
    const auto format = static_cast<ExpertFormat>(value);
    if (std::string_view(ExpertFormatName(format)) == "unknown") continue;
    const bool benched = std::ranges::any_of(
        kBenchedFormats, [&](const BenchedFormat& f) { return f.format == format; });
    EXPECT_TRUE(benched) << ExpertFormatName(format) << ": add its line to kBenchedFormats";
  }
}

TEST(BenchDataTest, ExpertsOfEveryFormatDecodeToOrdinaryWeights) {
  for (const BenchedFormat& format : kBenchedFormats) {
    const ExpertLayout layout = format.Layout(kHidden, kWidth);
    const ExpertLayout f32{.format = ExpertFormat::kF32, .hidden = kHidden, .width = kWidth};
    std::vector<std::byte> blob(layout.stride_bytes()), decoded(f32.stride_bytes());
    FillExpert(format, layout, blob);
    FindCpuKernels("scalar")->decode_expert.fn(
        {.layout = &layout, .blob = blob.data(), .f32_blob = decoded.data()});
    uint32_t zeros = 0, count = 0;
    for (size_t i = 0; i < f32.blob_bytes(); i += 4, ++count) {
      const auto weight = Load<float>(&decoded[i]);
      ASSERT_TRUE(IsOrdinary(weight)) << format.Name() << " " << i / 4;
      if (weight == 0) ++zeros;
    }
    EXPECT_LT(zeros, count / 4) << format.Name();
  }
}

TEST(BenchDataTest, MatricesOfEveryFormatGiveOrdinaryOutputs) {
  const CpuKernels& scalar = *FindCpuKernels("scalar");
  std::vector<float> x(kHidden, 0.5f), y(kWidth);
  std::vector<int8_t> q(kHidden);
  std::vector<float> scale(kHidden / 32);
  std::vector<int32_t> sum16(kHidden / 16);
  scalar.quantize_rows.fn({x.data(), kHidden, 1, kHidden, q.data(), scale.data(), sum16.data()});
  for (const MatrixFormat format : {MatrixFormat::kQ8, MatrixFormat::kBf16, MatrixFormat::kF32}) {
    std::vector<std::byte> w(MatrixBytes(format, kWidth, kHidden));
    FillMatrix(format, kHidden, w);
    if (format == MatrixFormat::kQ8) {
      scalar.matmul_q8.fn({.w = w.data(),
                           .x = {q.data(), scale.data(), sum16.data(), 1, kHidden},
                           .y = y.data(),
                           .y_stride = kWidth,
                           .out_rows = kWidth,
                           .band_end = BandCount(kWidth)});
    } else {
      (format == MatrixFormat::kBf16 ? scalar.matmul_bf16 : scalar.matmul_f32)
          .fn({.w = w.data(),
               .x = x.data(),
               .x_stride = kHidden,
               .rows = 1,
               .cols = kHidden,
               .y = y.data(),
               .y_stride = kWidth,
               .row_end = kWidth});
    }
    for (const float value : y) {
      EXPECT_TRUE(IsOrdinary(value) && value != 0) << MatrixFormatName(format);
    }
  }
}

}  // namespace
}  // namespace hearth
