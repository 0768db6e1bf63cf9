// LaunchExpertFfn on a GPU against every row of the CPU's kernel table, bit for bit: outputs, the
// quantised h between the two launches, and the bytes around both, which must stay as they were.
#include "gpu_kernels/ops/expert_ffn.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/expert_ffn_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

class ExpertFfn : public OnGpu {
 protected:
  // Launches twice: the same bits again. What takes one launch takes two as well: the same bits.
  void RunOnGpu(const ExpertFfnCase& c, ExpertFfnAnswer* answer) {
    absl::StatusOr<ExpertFfnOnGpu> run = ExpertFfnOnGpu::Create(c, gpu(), stream());
    ASSERT_TRUE(run.ok()) << run.status();
    ExpertFfnAnswer first(c);
    ASSERT_NO_FATAL_FAILURE(LaunchAndRead(*run, &first));
    ASSERT_NO_FATAL_FAILURE(LaunchAndRead(*run, answer));
    ASSERT_EQ(std::memcmp(first.y.data(), answer->y.data(), first.y.size() * 4), 0);
    if (!run->TakesOneLaunch()) return;
    run->TakeTwoLaunches();
    ASSERT_NO_FATAL_FAILURE(LaunchAndRead(*run, &first));
    ASSERT_EQ(std::memcmp(first.y.data(), answer->y.data(), first.y.size() * 4), 0);
    ASSERT_EQ(first.h.q, answer->h.q);
  }
  void LaunchAndRead(const ExpertFfnOnGpu& run, ExpertFfnAnswer* answer,
                     const uint32_t* item_count = nullptr) {
    absl::Status status = run.Launch(stream(), 0, item_count);
    ASSERT_TRUE(status.ok()) << status;
    status = run.Read(stream(), answer);
    ASSERT_TRUE(status.ok()) << status;
  }
};

void ExpectSameAnswer(const ExpertFfnAnswer& expected, const ExpertFfnAnswer& actual, Nans nans,
                      const std::string& what) {
  ExpectSameFloats(expected.h.scale, actual.h.scale, nans, what + " scales of h");
  EXPECT_EQ(expected.h.q, actual.h.q) << what;
  ExpectSameFloats(expected.y, actual.y, nans, what + " y");
}

bool HasNan(const ExpertFfnAnswer& answer) {
  return std::any_of(answer.y.begin(), answer.y.end(), [](float v) {
    return v != v && std::bit_cast<uint32_t>(v) != kUnwrittenBits;
  });
}

struct Shape {
  uint32_t hidden;
  uint32_t width;
};
// One segment and several, a last segment that is short, a last block of h of 16 values, blocks of
// threads that are not full.
constexpr Shape kShapes[] = {{16, 16},   {64, 32},    {32, 48},    {320, 48},
                             {336, 16},  {256, 64},   {80, 336},   {1280, 96},
                             {976, 304}, {2560, 640}, {5120, 112}, {640, 1280}};

// `rows_max` rows for some experts, fewer for others.
ExpertFfnCase CaseOf(Prng* prng, Shape shape, uint32_t rows_max, uint32_t items) {
  const ExpertLayout layout = {ExpertFormat::kNvfp4, shape.hidden, shape.width};
  const uint32_t window_rows = kExpertRowsMax;
  ExpertFfnCase c(
      layout, Quantized(WindowRows(prng, window_rows, shape.hidden), window_rows, shape.hidden));
  for (uint32_t i = 0; i < items; ++i) {
    const auto rows = i == 0 ? rows_max : 1 + static_cast<uint32_t>(prng->Below(rows_max));
    c.AddItem(prng, ExpertBlob::Random(prng, ExpertFormat::kNvfp4, shape.hidden, shape.width),
              rows);
  }
  c.Finish(prng);
  return c;
}

TEST_F(ExpertFfn, SameBitsAsEveryCpuRowAtOneToEightRows) {
  Prng prng(501);
  for (const Shape& shape : kShapes) {
    for (uint32_t rows = 1; rows <= kExpertRowsMax; ++rows) {
      const bool large = shape.hidden * shape.width > 500'000;
      const ExpertFfnCase c = CaseOf(&prng, shape, rows, large ? 3 : 5);
      ExpertFfnAnswer actual(c);
      ASSERT_NO_FATAL_FAILURE(RunOnGpu(c, &actual));
      EXPECT_FALSE(HasNan(actual));
      for (const CpuKernels* kernels : SupportedKernels()) {
        ExpectSameAnswer(AnswerOfCpu(c, *kernels), actual, Nans::kNone,
                         absl::StrCat("hidden ", shape.hidden, " width ", shape.width, " rows ",
                                      rows, " against ", ToAbsl(IsaName(kernels->isa))));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(ExpertFfn, EveryScaleCodeAndEveryPairOfCodes) {
  // Scale codes go round through 0 to 0x7E, subnormal ones among them, and code bytes through all
  // 256: every value meets every place of a sub-block.
  Prng prng(502);
  const uint32_t hidden = 640;
  const uint32_t width = 128;
  ExpertBlob blob(ExpertFormat::kNvfp4, hidden, width);
  uint32_t scale = 0;
  uint32_t code = 0;
  for (const Projection p : {Projection::kGate, Projection::kUp, Projection::kDown}) {
    const ExpertLayout& layout = blob.layout();
    for (uint32_t n = 0; n < layout.rows(p); ++n) {
      for (uint32_t k = 0; k < layout.cols(p); ++k) {
        blob.SetCode(p, n, k, (code >> (k % 8 < 4 ? 0 : 4)) & 15);
        code = k % 8 == 7 ? (code + 1) % 256 : code;
      }
      for (uint32_t b = 0; b < layout.cols(p) / 16; ++b, ++scale) {
        blob.SetScaleCode(p, n, b, static_cast<uint8_t>(scale % 127));
      }
    }
    blob.SetTrailer(p, 0, p == Projection::kDown ? 0x1p-130f : 0.001f);  // subnormal outputs too
  }
  ExpertFfnCase c(blob.layout(), Quantized(RandomFloats(&prng, 4 * hidden, 1), 4, hidden));
  c.AddItem(&prng, blob, 4);
  c.Finish(&prng);
  ExpertFfnAnswer actual(c);
  ASSERT_NO_FATAL_FAILURE(RunOnGpu(c, &actual));
  for (const CpuKernels* kernels : SupportedKernels()) {
    ExpectSameAnswer(AnswerOfCpu(c, *kernels), actual, Nans::kNone, "codes");
  }
}

TEST_F(ExpertFfn, ActivationsAtTheEndsOfTheirRange) {
  // Subnormal rows, where q reaches its bound; rows that overflow; infinities and NaNs, which mark
  // what depends on them on both sides.
  Prng prng(503);
  const uint32_t hidden = 640;
  const uint32_t width = 96;
  const ExpertLayout layout = {ExpertFormat::kNvfp4, hidden, width};
  ExpertFfnCase c(layout, Quantized(RowsAtTheEnds(&prng, hidden), 8, hidden));
  for (const uint32_t rows : {8u, 8u, 8u, 3u}) {
    c.AddItem(&prng, ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, hidden, width), rows);
  }
  c.Finish(&prng);
  ExpertFfnAnswer actual(c);
  ASSERT_NO_FATAL_FAILURE(RunOnGpu(c, &actual));
  EXPECT_TRUE(HasNan(actual));
  for (const CpuKernels* kernels : SupportedKernels()) {
    ExpectSameAnswer(AnswerOfCpu(c, *kernels), actual, Nans::kAnyPayload, "ends");
  }
}

TEST_F(ExpertFfn, GatesAcrossTheWholeRangeOfExp) {
  // Multipliers that spread the gate over -300 to 300: both ends of the clamp and all between.
  Prng prng(504);
  const uint32_t hidden = 320;
  const uint32_t width = 640;
  const ExpertLayout layout = {ExpertFormat::kNvfp4, hidden, width};
  ExpertFfnCase c(layout, Quantized(RandomFloats(&prng, 8 * hidden, 1), 8, hidden));
  for (int i = 0; i < 12; ++i) {
    ExpertBlob blob = ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, hidden, width);
    blob.SetTrailer(Projection::kGate, 0, std::ldexp(1.0f, i - 9));
    c.AddItem(&prng, std::move(blob), 8);
  }
  c.Finish(&prng);
  ExpertFfnAnswer actual(c);
  ASSERT_NO_FATAL_FAILURE(RunOnGpu(c, &actual));
  for (const CpuKernels* kernels : SupportedKernels()) {
    ExpectSameAnswer(AnswerOfCpu(c, *kernels), actual, Nans::kNone, "gates");
  }
}

TEST_F(ExpertFfn, ListsThatAreShorterOnTheCardThanTheirBound) {
  // What lies behind the end of a list is not touched; an empty list leaves everything as it was.
  Prng prng(506);
  for (const Shape& shape : {Shape{256, 64}, Shape{640, 640}}) {
    const ExpertFfnCase c = CaseOf(&prng, shape, 3, 9);
    const ExpertFfnAnswer expected = AnswerOfCpu(c, ScalarKernels());
    for (const uint32_t count : {0u, 1u, 8u, 0u, 9u}) {
      const absl::StatusOr<ExpertFfnOnGpu> run = ExpertFfnOnGpu::Create(c, gpu(), stream());
      ASSERT_TRUE(run.ok()) << run.status();
      const absl::StatusOr<DeviceBuffer> word =
          DeviceCopy(std::vector<uint32_t>(1, count), stream());
      ASSERT_TRUE(word.ok()) << word.status();
      ExpertFfnAnswer actual(c);
      ASSERT_NO_FATAL_FAILURE(
          LaunchAndRead(*run, &actual, reinterpret_cast<const uint32_t*>(word->data())));
      ExpertFfnAnswer listed(c);
      for (uint32_t e = 0; e < c.item_begin[count]; ++e) {
        const size_t row = kGuardFloats + size_t{c.entries[e].y_row} * c.y_stride;
        std::copy_n(&expected.y[row], c.layout.hidden, &listed.y[row]);
      }
      ExpectSameFloats(listed.y, actual.y, Nans::kNone, absl::StrCat(count, " items"));
    }
  }
}

TEST_F(ExpertFfn, TheRowsOfAnExpertDoNotDependOnEachOther) {
  // One row computed alone has the bits that it has among eight.
  Prng prng(505);
  const Shape shape = {2560, 64};
  const ExpertFfnCase together = CaseOf(&prng, shape, 8, 1);
  ExpertFfnAnswer all(together);
  ASSERT_NO_FATAL_FAILURE(RunOnGpu(together, &all));
  for (uint32_t t = 0; t < 8; ++t) {
    ExpertFfnCase alone(together.layout, together.x);
    alone.AddItem(&prng, together.blobs[0], 1);
    alone.Finish(&prng);
    alone.entries[0] = {together.entries[t].x_row, 0};
    ExpertFfnAnswer one(alone);
    ASSERT_NO_FATAL_FAILURE(RunOnGpu(alone, &one));
    const size_t row = size_t{together.entries[t].y_row} * together.y_stride;
    EXPECT_EQ(std::memcmp(&one.y[kGuardFloats], &all.y[kGuardFloats + row], shape.hidden * 4), 0)
        << t;
  }
}

}  // namespace
}  // namespace hearth
