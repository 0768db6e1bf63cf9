// LaunchExpertGemm on a GPU against the CPU's kernels, bit for bit: tensor cores in the canonical
// order.
#include "gpu_kernels/ops/prompt/expert_gemm.h"

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/prompt/expert_gemm_case.h"

namespace hearth {
namespace {

struct Shape {
  uint32_t hidden, width, rows, items, entries_max;
};

class ExpertGemm : public OnGpu {
 protected:
  void ExpectTheCpusBits(const ExpertFfnCase& c, const std::string& what) {
    const ExpertFfnAnswer expected = AnswerOfCpu(c, SelectCpuKernels(DetectCpuFeatures()));
    for (const ExpertGemmKind kind : {ExpertGemmKind::kWarp, ExpertGemmKind::kWarpgroup}) {
      if (kind == ExpertGemmKind::kWarpgroup && ExpertGemmKindFor(gpu().limits) != kind) continue;
      for (const uint32_t columns : kGemmClassColumns) {
        if (columns > ExpertGemmColumnsMax(kind, gpu().limits)) break;
        ExpectBits(c, expected, kind, columns,
                   absl::StrCat(what, kind == ExpertGemmKind::kWarp ? ", warps" : ", warpgroups",
                                ", tiles of ", columns));
      }
    }
  }

 private:
  void ExpectBits(const ExpertFfnCase& c, const ExpertFfnAnswer& expected, ExpertGemmKind kind,
                  uint32_t columns_max, const std::string& what) {
    const absl::StatusOr<ExpertGemmOnGpu> run =
        ExpertGemmOnGpu::Create(c, stream(), kind, columns_max);
    ASSERT_TRUE(run.ok()) << run.status();
    const absl::Status launched = run->Launch(stream());
    ASSERT_TRUE(launched.ok()) << launched;
    std::vector<float> actual(ExpertFfnAnswer(c).y.size());
    const absl::Status read = run->Read(stream(), &actual);
    ASSERT_TRUE(read.ok()) << read;
    uint32_t wrong = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(expected.y[i])) continue;
      if (++wrong > 3) continue;
      ADD_FAILURE() << what << ": float " << i << " is " << actual[i] << ", the CPU gives "
                    << expected.y[i];
    }
    EXPECT_EQ(wrong, 0u) << what;
  }
};

ExpertFfnCase CaseOf(const Shape& s, uint32_t seed, std::vector<float> x) {
  Prng prng(seed);
  const ExpertLayout layout{ExpertFormat::kNvfp4, s.hidden, s.width};
  ExpertFfnCase c(layout, Quantized(x, s.rows, s.hidden));
  for (uint32_t i = 0; i < s.items; ++i) {
    const auto rows = static_cast<uint32_t>(1 + prng.Below(std::min(s.rows, s.entries_max)));
    c.AddItem(&prng, ExpertBlob::Random(&prng, ExpertFormat::kNvfp4, s.hidden, s.width), rows);
  }
  c.Finish(&prng);
  return c;
}

TEST_F(ExpertGemm, SameBitsAsTheCpuAtEveryShapeAndTileClass) {
  const Shape shapes[] = {{256, 64, 40, 9, 40},   {2560, 640, 200, 6, 200}, {64, 32, 17, 5, 17},
                          {336, 80, 120, 7, 120}, {48, 16, 33, 4, 33},      {1280, 96, 97, 3, 97},
                          {2560, 640, 16, 8, 16}, {320, 320, 300, 3, 300},  {640, 2560, 70, 2, 70}};
  uint32_t seed = 1;
  for (const Shape& s : shapes) {
    Prng prng(seed);
    ExpectTheCpusBits(CaseOf(s, ++seed, RandomFloats(&prng, size_t{s.rows} * s.hidden, 2)),
                      absl::StrCat("hidden ", s.hidden, ", width ", s.width, ", rows ", s.rows));
  }
}

TEST_F(ExpertGemm, SameBitsForActivationsOfEveryMagnitude) {
  const Shape s{512, 128, 48, 6, 48};
  Prng prng(5);
  std::vector<float> x = RandomFloats(&prng, size_t{s.rows} * s.hidden, 1);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i / 32 * 7 % 120) - 90);  // blocks of 2^-90 to 2^29
  }
  std::fill_n(x.begin(), s.hidden, 0.0f);
  ExpectTheCpusBits(CaseOf(s, 11, x), "wild magnitudes");
}

}  // namespace
}  // namespace hearth
