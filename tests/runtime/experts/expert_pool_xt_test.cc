// The pool over experts in XT: each entry is what the definition makes of its row and expert alone,
// whatever the team and the other rows; reference arithmetic decodes.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"
#include "runtime/experts/expert_pool.h"
#include "tests/cpu_kernels/xt_blob.h"
#include "tests/support/allocation_count.h"
#include "tests/support/store_pool.h"

namespace hearth {
namespace {

constexpr uint32_t kRanks = 2;
constexpr uint32_t kExperts = 6;
constexpr uint32_t kHidden = 96;
constexpr uint32_t kWidth = 160;

// One layer of random experts.
class XtStore final : public ExpertStore {
 public:
  XtStore() {
    Prng prng(41);
    for (uint32_t e = 0; e < kExperts; ++e) {
      blobs_.push_back(XtBlob::Random(&prng, kHidden, kWidth, {3, 4, 2}));
    }
  }
  uint32_t layer_count() const override { return 1; }
  uint32_t expert_count() const override { return kExperts; }
  const ExpertLayout& layout(LayerId) const override { return blobs_[0].layout(); }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override {
    const XtBlob& blob = blobs_[key.expert.value];
    return MakeLease(0, {blob.data(), blob.layout().blob_bytes()});
  }
  const XtBlob& blob(uint32_t expert) const { return blobs_[expert]; }

 private:
  void Release(uint64_t) override {}
  std::vector<XtBlob> blobs_;
};

struct Rows {
  std::vector<float> x;
  std::vector<uint32_t> routes;
  WindowPlan plan;

  explicit Rows(uint32_t count) : x(size_t{count} * kHidden), routes(size_t{count} * kRanks) {
    Prng prng(count);
    for (float& v : x) v = static_cast<float>(prng.Uniform() * 2 - 1);
    for (uint32_t r = 0; r < count; ++r) {
      routes[r * kRanks] = static_cast<uint32_t>(prng.Below(kExperts));
      routes[r * kRanks + 1] =
          (routes[r * kRanks] + 1 + static_cast<uint32_t>(prng.Below(kExperts - 1))) % kExperts;
    }
    GroupRoutes({.expert = routes, .rows = count, .ranks = kRanks, .expert_count = kExperts}, plan);
  }
  ExpertRows Input(bool reference) const {
    // The pool rotates x itself; quantised rows only say that arithmetic is fast.
    static constexpr int8_t kSomething = 0;
    return {.x = x.data(),
            .quantized = {.q = reference ? nullptr : &kSomething},
            .rows = static_cast<uint32_t>(x.size() / kHidden)};
  }
};

// One row through one expert by the scalar kernels.
std::vector<float> ByDefinition(const XtBlob& blob, const float* x) {
  const CpuKernels& scalar = *FindCpuKernels("scalar");
  std::vector<float> scratch(kWidth), h(kWidth), y(kHidden);
  std::vector<int8_t> q(kWidth);
  float scale = 0;
  int32_t sum = 0;
  const auto rotate = [&](const float* from, uint32_t cols) -> XtRows {
    scalar.rotate_quantize_rows({.x = from,
                                 .x_stride = cols,
                                 .rows = 1,
                                 .cols = cols,
                                 .scratch = scratch.data(),
                                 .q = q.data(),
                                 .scale = &scale,
                                 .sum = &sum});
    return {q.data(), &scale, &sum, 1, cols};
  };
  scalar.expert_gate_up({.layout = &blob.layout(),
                         .blob = blob.data(),
                         .rows = 1,
                         .h = h.data(),
                         .h_stride = kWidth,
                         .band_begin = 0,
                         .band_end = BandCount(kWidth),
                         .xt = rotate(x, kHidden)});
  scalar.expert_down({.layout = &blob.layout(),
                      .blob = blob.data(),
                      .rows = 1,
                      .y = y.data(),
                      .y_stride = kHidden,
                      .band_begin = 0,
                      .band_end = BandCount(kHidden),
                      .ht = rotate(h.data(), kWidth)});
  return y;
}

std::unique_ptr<StorePool> MakePool(XtStore& store, WorkerTeam& team) {
  auto pool =
      StorePool::Create(store, SelectCpuKernels(DetectCpuFeatures()), team,
                        {.rows_max = 40, .ranks = kRanks, .decoded_bytes_max = uint64_t{4} << 20});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(ExpertPoolXt, EveryEntryIsTheDefinitionOfItsRowAndExpert) {
  XtStore store;
  for (const uint32_t workers : {1u, 5u}) {
    WorkerTeam team(workers);
    const auto pool = MakePool(store, team);
    for (const uint32_t count : {1u, 4u, 9u, 40u}) {
      const Rows rows(count);
      std::vector<float> output(rows.routes.size() * kHidden);
      ASSERT_TRUE(pool->Run(LayerId(0), rows.plan, rows.Input(false), output).ok());
      for (size_t i = 0; i < rows.routes.size(); ++i) {
        const std::vector<float> expected =
            ByDefinition(store.blob(rows.routes[i]), rows.x.data() + i / kRanks * kHidden);
        EXPECT_EQ(expected, std::vector<float>(output.begin() + i * kHidden,
                                               output.begin() + (i + 1) * kHidden))
            << workers << " workers, " << count << " rows, entry " << i;
      }
    }
  }
}

TEST(ExpertPoolXt, ReferenceArithmeticIsClose) {
  XtStore store;
  WorkerTeam team(2);
  const auto pool = MakePool(store, team);
  const Rows rows(9);
  std::vector<float> fast(rows.routes.size() * kHidden);
  std::vector<float> reference(fast.size());
  ASSERT_TRUE(pool->Run(LayerId(0), rows.plan, rows.Input(false), fast).ok());
  ASSERT_TRUE(pool->Run(LayerId(0), rows.plan, rows.Input(true), reference).ok());
  double error = 0, norm = 0;
  for (size_t i = 0; i < fast.size(); ++i) {
    error += std::pow(double{fast[i]} - reference[i], 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(error / norm), 0.03);
  EXPECT_NE(fast, reference);
}

TEST(ExpertPoolXt, AllocatesNothing) {
  XtStore store;
  WorkerTeam team(2);
  const auto pool = MakePool(store, team);
  const Rows rows(40);
  std::vector<float> output(rows.routes.size() * kHidden);
  ASSERT_TRUE(pool->Run(LayerId(0), rows.plan, rows.Input(false), output).ok());
  const ExpertRows input = rows.Input(false);
  const uint64_t before = AllocationCount();
  const bool ok = pool->Run(LayerId(0), rows.plan, input, output).ok();
  EXPECT_EQ(AllocationCount(), before);
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace hearth
