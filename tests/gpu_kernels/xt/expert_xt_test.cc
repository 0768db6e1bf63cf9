// LaunchExpertXt on a GPU against every row of the CPU's kernel table, bit for bit: outputs, the
// quantised h between the launches, and the bytes around both, which must stay as they were.
#include "gpu_kernels/ops/xt/expert_xt.h"

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/xt/expert_xt_case.h"

namespace hearth {
namespace {

class ExpertXt : public OnGpu {
 protected:
  // Launches twice: the same bits again. `limits`: of the card that the plan is for.
  void RunOnGpu(const ExpertXtCase& c, const GpuLimits& limits, ExpertXtAnswer* answer) {
    const absl::StatusOr<ExpertXtPlan> plan = PlanExpertXt(c.Desc(), limits);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const absl::StatusOr<ExpertXtOnGpu> run = ExpertXtOnGpu::Create(c, *plan, stream());
    ASSERT_TRUE(run.ok()) << run.status();
    ExpertXtAnswer first(c);
    absl::Status status = run->Launch(stream());
    ASSERT_TRUE(status.ok()) << status;
    status = run->Read(stream(), &first);
    ASSERT_TRUE(status.ok()) << status;
    status = run->Launch(stream());
    ASSERT_TRUE(status.ok()) << status;
    status = run->Read(stream(), answer);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(std::memcmp(first.y.data(), answer->y.data(), first.y.size() * 4), 0);
  }
  // A card with the shared memory of sm_89: other tables.
  GpuLimits SmallLimits() const {
    GpuLimits limits = gpu().limits;
    limits.shared_bytes_per_block_max = 101376;
    return limits;
  }
};

void ExpectSameAnswer(const ExpertXtAnswer& expected, const ExpertXtAnswer& actual, Nans nans,
                      const std::string& what) {
  ExpectSameFloats(expected.h.scale, actual.h.scale, nans, what + " scales of h");
  EXPECT_EQ(expected.h.q, actual.h.q) << what;
  EXPECT_EQ(expected.h.sum, actual.h.sum) << what;
  ExpectSameFloats(expected.y, actual.y, nans, what + " y");
}

struct Shape {
  uint32_t hidden;
  uint32_t width;
};
// One block of 32 columns and several, odd and even; one band, groups of different length; rotation
// blocks of 32, 64 and 128; Flashlet's and Flash-Next's.
constexpr Shape kShapes[] = {{32, 32},  {64, 32},   {32, 96},    {96, 64},  {256, 64},
                             {320, 96}, {672, 160}, {1312, 224}, {64, 672}, {2560, 640}};
constexpr XtBits kBits[] = {XtBits::All(3), XtBits::All(2), XtBits::All(4), {4, 3, 3}, {2, 4, 2}};

// `rows_max` rows for some experts, fewer for others.
ExpertXtCase CaseOf(Prng* prng, Shape shape, XtBits bits, uint32_t rows_max, uint32_t items) {
  const ExpertLayout layout =
      *ExpertLayout::Create(ExpertFormat::kXt, shape.hidden, shape.width, bits);
  ExpertXtCase c(layout,
                 XtRowsBuffer::Of(ScalarKernels(), WindowRows(prng, kExpertRowsMax, shape.hidden),
                                  kExpertRowsMax, shape.hidden));
  for (uint32_t i = 0; i < items; ++i) {
    const auto rows = i == 0 ? rows_max : 1 + static_cast<uint32_t>(prng->Below(rows_max));
    c.AddItem(prng, XtBlob::Random(prng, shape.hidden, shape.width, bits), rows);
  }
  c.Finish(prng);
  return c;
}

TEST_F(ExpertXt, SameBitsAsEveryCpuRowAtOneToEightRows) {
  Prng prng(701);
  for (const Shape& shape : kShapes) {
    for (const XtBits& bits : kBits) {
      for (uint32_t rows = 1; rows <= kExpertRowsMax; ++rows) {
        const bool large = shape.hidden * shape.width > 500'000;
        if (large && rows % 3 != 1 && bits.gate != 3) continue;
        const ExpertXtCase c = CaseOf(&prng, shape, bits, rows, large ? 3 : 5);
        ExpertXtAnswer actual(c);
        const bool small = rows % 2 == 0;
        ASSERT_NO_FATAL_FAILURE(RunOnGpu(c, small ? SmallLimits() : gpu().limits, &actual));
        for (const CpuKernels* kernels : SupportedKernels()) {
          if (shape.hidden * shape.width > 100'000 && kernels->isa == ScalarKernels().isa) continue;
          ExpectSameAnswer(
              AnswerOfCpu(c, *kernels, c.item_count()), actual, Nans::kNone,
              absl::StrCat(ExpertLayoutName(c.layout), " hidden ", shape.hidden, " width ",
                           shape.width, " rows ", rows, small ? " small" : "", " against ",
                           ToAbsl(IsaName(kernels->isa))));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(ExpertXt, TheListIsReadFromDeviceMemory) {
  // No items, some of them, more than there is room for.
  Prng prng(702);
  const ExpertXtCase c = CaseOf(&prng, {256, 64}, XtBits::All(3), 4, 6);
  const absl::StatusOr<ExpertXtPlan> plan = PlanExpertXt(c.Desc(), gpu().limits);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::StatusOr<ExpertXtOnGpu> run = ExpertXtOnGpu::Create(c, *plan, stream());
  ASSERT_TRUE(run.ok()) << run.status();
  for (const uint32_t count : {0u, 1u, 4u, 6u}) {
    absl::Status status = run->SetItemCount(count, stream());
    ASSERT_TRUE(status.ok()) << status;
    status = run->Launch(stream());
    ASSERT_TRUE(status.ok()) << status;
    ExpertXtAnswer actual(c);
    status = run->Read(stream(), &actual);
    ASSERT_TRUE(status.ok()) << status;
    const ExpertXtAnswer expected = AnswerOfCpu(c, ScalarKernels(), count);
    ExpectSameFloats(expected.y, actual.y, Nans::kNone, absl::StrCat(count, " items"));
  }
}

TEST_F(ExpertXt, ActivationsAtTheEndsOfTheirRange) {
  // Subnormal rows, rows that overflow; infinities and NaNs, which mark what depends on them on
  // both sides.
  Prng prng(703);
  const uint32_t hidden = 640;
  const uint32_t width = 96;
  const ExpertLayout layout = *ExpertLayout::Create(ExpertFormat::kXt, hidden, width, {4, 3, 3});
  ExpertXtCase c(layout,
                 XtRowsBuffer::Of(ScalarKernels(), RowsAtTheEnds(&prng, hidden), 8, hidden));
  for (const uint32_t rows : {8u, 8u, 8u, 3u}) {
    c.AddItem(&prng, XtBlob::Random(&prng, hidden, width, layout.xt_bits), rows);
  }
  c.Finish(&prng);
  ExpertXtAnswer actual(c);
  ASSERT_NO_FATAL_FAILURE(RunOnGpu(c, gpu().limits, &actual));
  for (const CpuKernels* kernels : SupportedKernels()) {
    ExpectSameAnswer(AnswerOfCpu(c, *kernels, c.item_count()), actual, Nans::kAnyPayload, "ends");
  }
}

TEST_F(ExpertXt, TheRowsOfAnExpertDoNotDependOnEachOther) {
  // One row computed alone has the bits that it has among eight.
  Prng prng(704);
  const ExpertXtCase together = CaseOf(&prng, {2560, 64}, XtBits::All(3), 8, 1);
  ExpertXtAnswer all(together);
  ASSERT_NO_FATAL_FAILURE(RunOnGpu(together, gpu().limits, &all));
  for (uint32_t t = 0; t < 8; ++t) {
    ExpertXtCase alone(together.layout, together.x);
    alone.AddItem(&prng, together.blobs[0], 1);
    alone.Finish(&prng);
    alone.entries[0] = {together.entries[t].x_row, 0};
    ExpertXtAnswer one(alone);
    ASSERT_NO_FATAL_FAILURE(RunOnGpu(alone, gpu().limits, &one));
    const size_t row = size_t{together.entries[t].y_row} * together.y_stride;
    EXPECT_EQ(std::memcmp(&one.y[kGuardFloats], &all.y[kGuardFloats + row], 2560 * 4), 0) << t;
  }
}

}  // namespace
}  // namespace hearth
