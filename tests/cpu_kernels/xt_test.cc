// cpu_kernels/ops/xt.h: rotated and quantised rows, experts in XT: every instruction set against
// the definition, bit for bit, and the definition against its own decoded weights.
#include <array>
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/scalar/exp.h"
#include "pack/format/xt_matrix.h"
#include "tests/cpu_kernels/kernel_fixture.h"
#include "tests/cpu_kernels/xt_blob.h"

namespace hearth {
namespace {

class XtEachIsa : public EachIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, XtEachIsa, testing::ValuesIn(SupportedKernels()), IsaParamName);

// Owner of rotated, quantised rows.
struct XtBuffer {
  std::vector<float> scratch;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  uint32_t rows;
  uint32_t cols;

  XtBuffer(uint32_t rows_in, uint32_t cols_in)
      : scratch(cols_in),
        q(size_t{rows_in} * cols_in),
        scale(rows_in),
        sum(rows_in),
        rows(rows_in),
        cols(cols_in) {}
  static XtBuffer Of(const CpuKernels& kernels, const std::vector<float>& x, uint32_t rows,
                     uint32_t cols, uint32_t stride) {
    XtBuffer buffer(rows, cols);
    kernels.rotate_quantize_rows({.x = x.data(),
                                  .x_stride = stride,
                                  .rows = rows,
                                  .cols = cols,
                                  .scratch = buffer.scratch.data(),
                                  .q = buffer.q.data(),
                                  .scale = buffer.scale.data(),
                                  .sum = buffer.sum.data()});
    return buffer;
  }
  XtRows View() const { return {q.data(), scale.data(), sum.data(), rows, cols}; }
};

bool SameFloat(float a, float b) {
  return (a != a && b != b) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST_P(XtEachIsa, RotatedRowsAreThoseOfTheDefinition) {
  Prng prng(31);
  for (const uint32_t cols : {32u, 64u, 96u, 128u, 192u, 640u, 2560u}) {
    const uint32_t stride = cols + 5;
    std::vector<float> x = WildFloats(&prng, size_t{6} * stride);
    for (uint32_t i = 0; i < cols; ++i) {
      x[stride + i] = 0;                                              // a row of zeros
      x[2 * stride + i] = RandomFloat(&prng, 1e-43f);                 // subnormal scale
      x[3 * stride + i] = RotationSign(i) * (i == 0 ? 3e38f : 1e3f);  // overflows
    }
    x[4 * stride + 7] = NAN;
    const XtBuffer expected = XtBuffer::Of(ScalarKernels(), x, 6, cols, stride);
    const XtBuffer actual = XtBuffer::Of(kernels(), x, 6, cols, stride);
    EXPECT_EQ(expected.q, actual.q) << cols;
    EXPECT_EQ(expected.sum, actual.sum) << cols;
    for (uint32_t t = 0; t < 6; ++t) {
      EXPECT_TRUE(SameFloat(expected.scale[t], actual.scale[t])) << cols << " row " << t;
    }
    EXPECT_EQ(actual.scale[1], 0.0f);
    EXPECT_FALSE(std::isfinite(actual.scale[4]));
  }
}

TEST(XtDefinition, QuantisedRowIsTheRotatedRow) {
  Prng prng(32);
  const uint32_t cols = 256;
  const std::vector<float> x = RandomFloats(&prng, cols, 3);
  const XtBuffer rows = XtBuffer::Of(ScalarKernels(), x, 1, cols, cols);
  std::vector<float> rotated = x;
  RotateXt(rotated);
  int32_t sum = 0;
  float largest = 0;
  for (uint32_t i = 0; i < cols; ++i) {
    EXPECT_LE(std::abs(rotated[i] - static_cast<float>(rows.q[i]) * rows.scale[0]),
              rows.scale[0] * 0.501f);
    sum += rows.q[i];
    largest = std::max(largest, std::abs(rotated[i]));
  }
  EXPECT_EQ(rows.sum[0], sum);
  EXPECT_EQ(rows.scale[0], largest / 127.0f);
}

ExpertGateUpArgs GateUpArgs(const XtBlob& blob, const XtBuffer& x, OutputBuffer* h,
                            uint32_t h_stride) {
  return {.layout = &blob.layout(),
          .blob = blob.data(),
          .rows = x.rows,
          .h = h->data(),
          .h_stride = h_stride,
          .band_begin = 0,
          .band_end = BandCount(blob.layout().width),
          .xt = x.View()};
}

ExpertDownArgs DownArgs(const XtBlob& blob, const XtBuffer& h, OutputBuffer* y, uint32_t y_stride) {
  return {.layout = &blob.layout(),
          .blob = blob.data(),
          .rows = h.rows,
          .y = y->data(),
          .y_stride = y_stride,
          .band_begin = 0,
          .band_end = BandCount(blob.layout().hidden),
          .ht = h.View()};
}

// A random share of the bands, any range but an empty one.
template <class Args>
void Cut(Prng* prng, Args* args) {
  args->band_begin = static_cast<uint32_t>(prng->Below(args->band_end));
  args->band_end =
      args->band_begin + 1 + static_cast<uint32_t>(prng->Below(args->band_end - args->band_begin));
}

void CheckExpert(const CpuKernels& kernels, Prng* prng, const XtBlob& blob, uint32_t rows,
                 bool cut) {
  const uint32_t hidden = blob.layout().hidden;
  const uint32_t width = blob.layout().width;
  const std::string what = absl::StrCat(ExpertLayoutName(blob.layout()), " hidden ", hidden,
                                        " width ", width, " rows ", rows);
  const XtBuffer x =
      XtBuffer::Of(ScalarKernels(), WildFloats(prng, size_t{rows} * hidden), rows, hidden, hidden);
  const uint32_t h_stride = width + 7;
  OutputBuffer h_expected(size_t{rows} * h_stride);
  OutputBuffer h_actual(size_t{rows} * h_stride);
  ExpertGateUpArgs gate_up = GateUpArgs(blob, x, &h_expected, h_stride);
  if (cut) Cut(prng, &gate_up);
  ScalarKernels().expert_gate_up(gate_up);
  gate_up.h = h_actual.data();
  gate_up.read_ahead = blob.data();
  kernels.expert_gate_up(gate_up);
  ExpectSameBits(h_expected, h_actual, absl::StrCat("gate_up ", what));

  const XtBuffer h =
      XtBuffer::Of(ScalarKernels(), WildFloats(prng, size_t{rows} * width), rows, width, width);
  const uint32_t y_stride = hidden + 1;
  OutputBuffer y_expected(size_t{rows} * y_stride);
  OutputBuffer y_actual(size_t{rows} * y_stride);
  ExpertDownArgs down = DownArgs(blob, h, &y_expected, y_stride);
  if (cut) Cut(prng, &down);
  ScalarKernels().expert_down(down);
  down.y = y_actual.data();
  kernels.expert_down(down);
  ExpectSameBits(y_expected, y_actual, absl::StrCat("down ", what));
}

struct Shape {
  uint32_t hidden;
  uint32_t width;
};

TEST_P(XtEachIsa, SameBitsAsTheDefinition) {
  Prng prng(33);
  // One band; bands that end early; groups of 41 and of 81 bands.
  const std::vector<Shape> shapes = {{32, 32},  {64, 96},  {96, 32},
                                     {160, 64}, {32, 672}, {1312, 32}};
  const std::vector<XtBits> bits = {XtBits::All(2), XtBits::All(3), XtBits::All(4),
                                    {4, 2, 3},      {2, 3, 4},      {3, 4, 2}};
  for (const Shape& s : shapes) {
    for (const XtBits& b : bits) {
      if (s.hidden * s.width > 20000 && b.gate != b.up) continue;
      const XtBlob blob = XtBlob::Random(&prng, s.hidden, s.width, b);
      const uint32_t rows = 1 + static_cast<uint32_t>(prng.Below(8));
      CheckExpert(kernels(), &prng, blob, rows, false);
      CheckExpert(kernels(), &prng, blob, 1, true);
    }
  }
}

TEST_P(XtEachIsa, EveryNumberOfRowsAndAnyShareOfBands) {
  Prng prng(34);
  for (const uint8_t bits : {2, 3, 4}) {
    const XtBlob blob = XtBlob::Random(&prng, 96, 704, XtBits::All(bits));  // 44 bands: two groups
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u}) {
      CheckExpert(kernels(), &prng, blob, rows, true);
    }
  }
}

TEST_P(XtEachIsa, TheRealWidths) {
  Prng prng(35);
  for (const uint8_t bits : {2, 3, 4}) {
    CheckExpert(kernels(), &prng, XtBlob::Random(&prng, 2560, 32, XtBits::All(bits)), 2, false);
    CheckExpert(kernels(), &prng, XtBlob::Random(&prng, 32, 640, XtBits::All(bits)), 1, false);
  }
}

// The sum of the levels of each of the 16 rows of a down projection.
std::array<int64_t, 16> LevelSums(const XtBlob& blob) {
  const XtShape shape = blob.layout().xt_shape(Projection::kDown);
  std::array<int64_t, 16> sums{};
  for (uint32_t block = 0; block < shape.block_count(); ++block) {
    XtLevels levels;
    DecodeXtChunk(shape, blob.data() + blob.layout().projection_offset_bytes(Projection::kDown),
                  block, 0, &levels);
    for (const auto& step : levels) {
      for (size_t lane = 0; lane < step.size(); ++lane) sums[lane / 4] += step[lane];
    }
  }
  return sums;
}

TEST_P(XtEachIsa, SaturatedOperandsDoNotOverflow) {
  Prng prng(36);
  const uint32_t width = 2560;
  for (const uint8_t bits : {2, 3, 4}) {
    XtBlob blob = XtBlob::Random(&prng, 32, width, XtBits::All(bits));
    for (uint32_t row = 0; row < 16; ++row) blob.SetRowScale(Projection::kDown, row, 1.0f);
    blob.SetMultiplier(Projection::kDown, 1.0f);
    const std::array<int64_t, 16> sums = LevelSums(blob);
    for (const int8_t q : {int8_t{127}, int8_t{-127}}) {
      XtBuffer h(1, width);
      std::fill(h.q.begin(), h.q.end(), q);
      h.scale[0] = 1.0f;
      h.sum[0] = static_cast<int32_t>(width) * q;
      OutputBuffer y(32);
      kernels().expert_down(DownArgs(blob, h, &y, 32));
      for (uint32_t row = 0; row < 16; ++row) {
        EXPECT_EQ(y[row], static_cast<float>(sums[row] * q)) << row;
      }
    }
  }
}

TEST_P(XtEachIsa, WritesItsShareOnly) {
  Prng prng(37);
  const XtBlob blob = XtBlob::Random(&prng, 64, 96, {3, 4, 2});
  const XtBuffer x = XtBuffer::Of(ScalarKernels(), RandomFloats(&prng, 3 * 64, 1), 3, 64, 64);
  OutputBuffer h(3 * 96);
  ExpertGateUpArgs args = GateUpArgs(blob, x, &h, 96);
  args.band_begin = 1;
  args.band_end = 4;
  kernels().expert_gate_up(args);
  for (size_t i = 0; i < 3 * 96; ++i) EXPECT_EQ(h.Written(i), i % 96 >= 16 && i % 96 < 64) << i;
}

// The weight (n, k) of a decoded blob.
float DecodedWeight(const ExpertLayout& f32, const std::vector<std::byte>& blob, Projection p,
                    uint32_t n, uint32_t k) {
  float w;
  std::memcpy(&w,
              blob.data() + f32.projection_offset_bytes(p) + n / 16 * f32.band_bytes(p) +
                  (size_t{k} * 16 + n % 16) * 4,
              sizeof(w));
  return w;
}

TEST(XtDefinition, DotsAreThoseOfTheDecodedWeights) {
  Prng prng(38);
  const uint32_t hidden = 128;
  const uint32_t width = 256;
  for (const uint8_t bits : {2, 3, 4}) {
    const XtBlob blob = XtBlob::Random(&prng, hidden, width, XtBits::All(bits));
    const ExpertLayout f32 = {ExpertFormat::kF32, hidden, width};
    std::vector<std::byte> decoded(f32.blob_bytes());
    ScalarKernels().decode_expert(
        {.layout = &blob.layout(), .blob = blob.data(), .f32_blob = decoded.data()});
    const std::vector<float> h = RandomFloats(&prng, width, 1);
    OutputBuffer y(hidden);
    ScalarKernels().expert_down(
        DownArgs(blob, XtBuffer::Of(ScalarKernels(), h, 1, width, width), &y, hidden));
    for (uint32_t n = 0; n < hidden; ++n) {
      double dot = 0;
      double norm = 0;
      for (uint32_t k = 0; k < width; ++k) {
        const double w = DecodedWeight(f32, decoded, Projection::kDown, n, k);
        dot += w * h[k];
        norm += w * w;
      }
      // What the activations lose by quantisation is at most half a step of s = max / 127 each.
      EXPECT_NEAR(y[n], dot, std::sqrt(norm) * 0.05) << n;
    }
  }
}

TEST(XtDefinition, RowsOfScaleZeroDecodeToZero) {
  Prng prng(39);
  const XtBlob blob = XtBlob::Random(&prng, 32, 32, XtBits::All(3));
  const ExpertLayout f32 = {ExpertFormat::kF32, 32, 32};
  std::vector<std::byte> decoded(f32.blob_bytes(), std::byte{1});
  ScalarKernels().decode_expert(
      {.layout = &blob.layout(), .blob = blob.data(), .f32_blob = decoded.data()});
  bool differs = false;
  for (uint32_t k = 0; k < 32; ++k) {
    differs |= DecodedWeight(f32, decoded, Projection::kUp, 0, k) != 0;
    EXPECT_EQ(DecodedWeight(f32, decoded, Projection::kUp, 5, k), 0.0f);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace hearth
