// cpu_kernels/ops/expert.h: the definition on cases that can be computed by hand, and every
// instruction set against the definition, bit for bit.
#include <cmath>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/scalar/exp.h"
#include "tests/cpu_kernels/expert_blob.h"
#include "tests/cpu_kernels/kernel_fixture.h"

namespace hearth {
namespace {

class ExpertEachIsa : public EachIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, ExpertEachIsa, testing::ValuesIn(SupportedKernels()), IsaParamName);

// Activations of one expert call, in both forms.
struct Rows {
  uint32_t count;
  std::vector<float> values;
  QuantizedBuffer quantized;

  static Rows Of(std::vector<float> values, uint32_t count, uint32_t cols) {
    QuantizedBuffer quantized = Quantized(values, count, cols);
    return {count, std::move(values), std::move(quantized)};
  }
};

ExpertGateUpArgs GateUpArgs(const ExpertBlob& blob, const Rows& x, OutputBuffer* h,
                            uint32_t h_stride) {
  return {.layout = &blob.layout(),
          .blob = blob.data(),
          .xq = x.quantized.View(),
          .x = x.values.data(),
          .x_stride = blob.layout().hidden,
          .rows = x.count,
          .h = h->data(),
          .h_stride = h_stride,
          .band_begin = 0,
          .band_end = BandCount(blob.layout().width)};
}

ExpertDownArgs DownArgs(const ExpertBlob& blob, const Rows& h, OutputBuffer* y, uint32_t y_stride) {
  return {.layout = &blob.layout(),
          .blob = blob.data(),
          .hq = h.quantized.View(),
          .h = h.values.data(),
          .h_stride = blob.layout().width,
          .rows = h.count,
          .y = y->data(),
          .y_stride = y_stride,
          .band_begin = 0,
          .band_end = BandCount(blob.layout().hidden)};
}

TEST_P(ExpertEachIsa, Nvfp4DownIsExactOnIntegers) {
  // Scale code 0x38 is 1.0: every weight is a multiple of 1/2, every sum below 2^24.
  Prng prng(11);
  const uint32_t width = 96;
  ExpertBlob blob(ExpertFormat::kNvfp4, 32, width);
  std::vector<float> weight(32 * width);
  for (uint32_t n = 0; n < 32; ++n) {
    for (uint32_t k = 0; k < width; ++k) {
      const auto code = static_cast<uint8_t>(prng.Below(16));
      blob.SetCode(Projection::kDown, n, k, code);
      blob.SetScaleCode(Projection::kDown, n, k / 16, 0x38);
      weight[n * width + k] = DecodeE2m1(code);
    }
  }
  blob.SetTrailer(Projection::kDown, 0, 0.25f);
  std::vector<float> h(width);
  for (float& v : h) v = static_cast<float>(static_cast<int>(prng.Below(255)) - 127);
  for (uint32_t b = 0; b < width / 32; ++b) h[b * 32 + b] = 127;  // each block has the scale 1
  OutputBuffer y(32);
  kernels().expert_down(DownArgs(blob, Rows::Of(h, 1, width), &y, 32));
  for (uint32_t n = 0; n < 32; ++n) {
    double sum = 0;
    for (uint32_t k = 0; k < width; ++k) sum += double{weight[n * width + k]} * h[k];
    EXPECT_EQ(y[n], sum * 0.25) << n;
  }
}

TEST_P(ExpertEachIsa, GateGoesThroughSiluAndUpMultiplies) {
  // Row n of gate has one weight, n / 8, at column n; row n of up has 1 at column 0.
  ExpertBlob blob(ExpertFormat::kF32, 24, 20);
  for (uint32_t n = 0; n < 20; ++n) {
    const float gate = static_cast<float>(n) / 8;
    blob.SetCode(Projection::kGate, n, n, std::bit_cast<uint32_t>(gate));
    blob.SetCode(Projection::kUp, n, 0, std::bit_cast<uint32_t>(1.0f));
  }
  std::vector<float> x(24, -2.0f);
  x[0] = 3.0f;
  OutputBuffer h(20);
  kernels().expert_gate_up(GateUpArgs(blob, Rows::Of(x, 1, 24), &h, 20));
  for (uint32_t n = 0; n < 20; ++n) {
    EXPECT_EQ(h[n], scalar::SiluOf(static_cast<float>(n) / 8 * x[n]) * 3.0f) << n;
  }
}

struct Shape {
  uint32_t hidden;
  uint32_t width;
};

void CheckExpert(const CpuKernels& kernels, Prng* prng, const ExpertBlob& blob, uint32_t rows) {
  const auto [hidden, width] = Shape{blob.layout().hidden, blob.layout().width};
  const std::string what = absl::StrCat(ExpertFormatName(blob.layout().format), " hidden ", hidden,
                                        " width ", width, " rows ", rows);
  const Rows x = Rows::Of(WildFloats(prng, size_t{rows} * hidden), rows, hidden);
  const uint32_t h_stride = width + 7;
  OutputBuffer h_expected(size_t{rows} * h_stride);
  OutputBuffer h_actual(size_t{rows} * h_stride);
  ExpertGateUpArgs gate_up = GateUpArgs(blob, x, &h_expected, h_stride);
  gate_up.band_begin = static_cast<uint32_t>(prng->Below(gate_up.band_end));
  ScalarKernels().expert_gate_up(gate_up);
  gate_up.h = h_actual.data();
  kernels.expert_gate_up(gate_up);
  ExpectSameBits(h_expected, h_actual, absl::StrCat("gate_up ", what));

  const Rows h = Rows::Of(WildFloats(prng, size_t{rows} * width), rows, width);
  const uint32_t y_stride = hidden + 1;
  OutputBuffer y_expected(size_t{rows} * y_stride);
  OutputBuffer y_actual(size_t{rows} * y_stride);
  ExpertDownArgs down = DownArgs(blob, h, &y_expected, y_stride);
  down.band_end = 1 + static_cast<uint32_t>(prng->Below(down.band_end));
  ScalarKernels().expert_down(down);
  down.y = y_actual.data();
  kernels.expert_down(down);
  ExpectSameBits(y_expected, y_actual, absl::StrCat("down ", what));
}

TEST_P(ExpertEachIsa, Nvfp4SameBitsAsTheDefinition) {
  Prng prng(12);
  const std::vector<Shape> shapes = {{16, 16},  {32, 48},   {48, 32},  {64, 80},  {80, 16},
                                     {256, 64}, {320, 112}, {336, 16}, {640, 32}, {64, 336}};
  for (const Shape& s : shapes) {
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 33u}) {
      if (s.hidden * s.width > 20000 && rows > 9) continue;
      CheckExpert(kernels(), &prng,
                  ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, s.hidden, s.width), rows);
    }
  }
  CheckExpert(kernels(), &prng, ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 2560, 96), 1);
  CheckExpert(kernels(), &prng, ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 2560, 32), 8);
}

TEST_P(ExpertEachIsa, WideFormatsSameBitsAsTheDefinition) {
  Prng prng(13);
  const std::vector<Shape> shapes = {{1, 1},    {5, 17},   {48, 33},  {80, 64},
                                     {129, 16}, {321, 40}, {640, 20}, {20, 700}};
  for (const ExpertFormat format : {ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
    for (const Shape& s : shapes) {
      for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u}) {
        if (s.hidden * s.width > 6000 && rows > 9) continue;
        CheckExpert(kernels(), &prng, ExpertBlob::Random(&prng, format, s.hidden, s.width), rows);
      }
    }
  }
}

TEST_P(ExpertEachIsa, Nvfp4EveryScaleCodeAndEveryElementCode) {
  // Row n, sub-block b has the scale code n + 32 b (up to 0x7E), elements run through all codes.
  ExpertBlob blob(ExpertFormat::kNvfp4, 32, 64);
  for (uint32_t n = 0; n < 32; ++n) {
    for (uint32_t k = 0; k < 64; ++k) {
      blob.SetCode(Projection::kDown, n, k, (k + n) % 16);
      blob.SetScaleCode(Projection::kDown, n, k / 16,
                        static_cast<uint8_t>(std::min(n + 32 * (k / 16), 0x7Eu)));
    }
  }
  blob.SetTrailer(Projection::kDown, 0, 1.0f);
  Prng prng(14);
  for (uint32_t b = 0; b < 4; ++b) {  // one sub-block at a time is not zero
    std::vector<float> h(64, 0.0f);
    for (uint32_t k = 0; k < 16; ++k) h[b * 16 + k] = RandomFloat(&prng, 1);
    const Rows rows = Rows::Of(h, 1, 64);
    OutputBuffer y(32);
    kernels().expert_down(DownArgs(blob, rows, &y, 32));
    for (uint32_t n = 0; n < 32; ++n) {
      int32_t dot = 0;
      for (uint32_t k = b * 16; k < b * 16 + 16; ++k) {
        dot += kE2m1Doubled[(k + n) % 16] * rows.quantized.q[k];
      }
      const float w_scale = DecodeE4m3(static_cast<uint8_t>(std::min(n + 32 * b, 0x7Eu))) / 2;
      EXPECT_EQ(y[n], rows.quantized.scale[b / 2] * w_scale * static_cast<float>(dot)) << n;
    }
  }
}

TEST_P(ExpertEachIsa, Nvfp4SaturatedOperandsDoNotOverflow) {
  const uint32_t width = 2560;
  ExpertBlob blob(ExpertFormat::kNvfp4, 16, width);
  for (uint32_t n = 0; n < 16; ++n) {
    for (uint32_t k = 0; k < width; ++k) {
      blob.SetCode(Projection::kDown, n, k, n % 2 == 0 ? 7 : 15);  // 6 and -6
      blob.SetScaleCode(Projection::kDown, n, k / 16, 0x38);
    }
  }
  blob.SetTrailer(Projection::kDown, 0, 1.0f);
  for (const float sign : {1.0f, -1.0f}) {
    OutputBuffer y(16);
    const Rows h = Rows::Of(std::vector<float>(width, 127 * sign), 1, width);
    kernels().expert_down(DownArgs(blob, h, &y, 16));
    EXPECT_EQ(y[0], 6.0f * 127 * width * sign);
    EXPECT_EQ(y[1], -6.0f * 127 * width * sign);
  }
}

TEST_P(ExpertEachIsa, Nvfp4SameBitsOverRandomShapes) {
  Prng prng(18);
  for (int i = 0; i < 40; ++i) {
    const auto hidden = static_cast<uint32_t>(16 * (1 + prng.Below(i % 8 == 0 ? 64 : 12)));
    const auto width = static_cast<uint32_t>(16 * (1 + prng.Below(12)));
    const auto rows = static_cast<uint32_t>(1 + prng.Below(10));
    CheckExpert(kernels(), &prng, ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, hidden, width),
                rows);
  }
}

TEST_P(ExpertEachIsa, Nvfp4SameBitsFromSubnormalToTheLargestActivations) {
  Prng prng(19);
  const uint32_t width = 336;
  for (const float magnitude : {1e-45f, 1e-42f, 1e-38f, 1e-30f, 1e30f, 1e36f, 3.4028e38f}) {
    const ExpertBlob blob = ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 64, width);
    const Rows h = Rows::Of(RandomFloats(&prng, size_t{3} * width, magnitude), 3, width);
    OutputBuffer expected(3 * 64);
    OutputBuffer actual(3 * 64);
    ScalarKernels().expert_down(DownArgs(blob, h, &expected, 64));
    kernels().expert_down(DownArgs(blob, h, &actual, 64));
    ExpectSameBits(expected, actual, absl::StrCat("magnitude ", magnitude));
  }
}

TEST_P(ExpertEachIsa, ReadAheadIsAskedForAndNeverRead) {
  Prng prng(20);
  const ExpertBlob blob = ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 64, 96);
  for (const uint32_t rows : {1u, 3u, 8u, 9u}) {
    const Rows x = Rows::Of(RandomFloats(&prng, size_t{rows} * 64, 1), rows, 64);
    const Rows h = Rows::Of(RandomFloats(&prng, size_t{rows} * 96, 1), rows, 96);
    OutputBuffer h_plain(size_t{rows} * 96);
    OutputBuffer h_ahead(size_t{rows} * 96);
    OutputBuffer y_plain(size_t{rows} * 64);
    OutputBuffer y_ahead(size_t{rows} * 64);
    kernels().expert_gate_up(GateUpArgs(blob, x, &h_plain, 96));
    kernels().expert_down(DownArgs(blob, h, &y_plain, 64));
    ExpertGateUpArgs gate_up = GateUpArgs(blob, x, &h_ahead, 96);
    ExpertDownArgs down = DownArgs(blob, h, &y_ahead, 64);
    gate_up.read_ahead = down.read_ahead = reinterpret_cast<const std::byte*>(64);  // not mapped
    kernels().expert_gate_up(gate_up);
    kernels().expert_down(down);
    ExpectSameBits(h_plain, h_ahead, "gate_up");
    ExpectSameBits(y_plain, y_ahead, "down");
  }
}

TEST_P(ExpertEachIsa, RowsDoNotDependOnEachOther) {
  Prng prng(15);
  const ExpertBlob blob = ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, 320, 64);
  const std::vector<float> values = WildFloats(&prng, 11 * 320);
  OutputBuffer together(11 * 64);
  OutputBuffer alone(11 * 64);
  kernels().expert_gate_up(GateUpArgs(blob, Rows::Of(values, 11, 320), &together, 64));
  for (uint32_t t = 0; t < 11; ++t) {
    const Rows one = Rows::Of({values.begin() + t * 320, values.begin() + (t + 1) * 320}, 1, 320);
    ExpertGateUpArgs args = GateUpArgs(blob, one, &alone, 64);
    args.h = alone.data() + t * 64;
    kernels().expert_gate_up(args);
  }
  ExpectSameBits(together, alone, "one row at a time");
}

TEST_P(ExpertEachIsa, WritesItsShareOnly) {
  Prng prng(16);
  for (const ExpertFormat format : {ExpertFormat::kNvfp4, ExpertFormat::kBf16}) {
    const ExpertBlob blob = ExpertBlob::Random(&prng, format, 64, 80);
    const Rows x = Rows::Of(RandomFloats(&prng, 3 * 64, 1), 3, 64);
    OutputBuffer h(3 * 80);
    ExpertGateUpArgs args = GateUpArgs(blob, x, &h, 80);
    args.band_begin = 1;
    args.band_end = 4;
    kernels().expert_gate_up(args);
    for (size_t i = 0; i < 3 * 80; ++i) EXPECT_EQ(h.Written(i), i % 80 >= 16 && i % 80 < 64) << i;
  }
}

TEST(ExpertDefinition, DecodedBlobHoldsTheWeights) {
  Prng prng(17);
  for (const ExpertFormat format :
       {ExpertFormat::kNvfp4, ExpertFormat::kBf16, ExpertFormat::kFp8, ExpertFormat::kF32}) {
    ExpertBlob blob = ExpertBlob::Random(&prng, format, 160, 144);
    const uint32_t code = format == ExpertFormat::kNvfp4  ? 13    // -3
                          : format == ExpertFormat::kFp8  ? 0xC4  // -3
                          : format == ExpertFormat::kBf16 ? 0xC040
                                                          : std::bit_cast<uint32_t>(-3.0f);
    blob.SetCode(Projection::kUp, 131, 150, code);
    float expected = -3;
    if (format == ExpertFormat::kNvfp4) {
      blob.SetScaleCode(Projection::kUp, 131, 150 / 16, 0x40);  // 2.0
      blob.SetTrailer(Projection::kUp, 0, 0.3f);
      expected = -6.0f * 0.3f;
    } else if (format == ExpertFormat::kFp8) {
      blob.SetTrailer(Projection::kUp, 3, 0.7f);  // second block of rows and of columns
      expected = -3.0f * 0.7f;
    }
    const ExpertLayout f32 = {ExpertFormat::kF32, 160, 144};
    std::vector<std::byte> decoded(f32.blob_bytes());
    ScalarKernels().decode_expert(
        {.layout = &blob.layout(), .blob = blob.data(), .f32_blob = decoded.data()});
    float actual = 0;
    std::memcpy(&actual,
                decoded.data() + f32.projection_offset_bytes(Projection::kUp) +
                    131 / 16 * f32.band_bytes(Projection::kUp) + (150 * 16 + 131 % 16) * 4,
                4);
    EXPECT_EQ(actual, expected) << ExpertFormatName(format);
  }
}

}  // namespace
}  // namespace hearth
