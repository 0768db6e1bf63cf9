// The pool against float64 experts, in every format and both arithmetics; and its promise that
// neither team size nor the company of other rows changes a bit.
#include "runtime/experts/expert_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "cache/store/whole_arena.h"
#include "runtime/base/prng.h"
#include "tests/support/allocation_count.h"
#include "tests/support/runner_fixture.h"
#include "tests/support/store_pool.h"
#include "tests/support/tiny_checkpoint.h"

namespace hearth {
namespace {

constexpr uint32_t kRanks = 2;

struct Rig {  // a pack of T0, its store and a pool
  Rig(const TinyCheckpoint& tiny, uint32_t worker_count, uint32_t rows_max,
      uint64_t decoded_bytes_max = uint64_t{16} << 20, std::vector<uint32_t> worker_nodes = {})
      : team(worker_count, std::move(worker_nodes)) {
    FixtureDir dir;
    tiny.Write(dir.path());
    pack = std::make_unique<TemporaryPack>(dir.path(), DenseChoice::kBf16);
    absl::StatusOr<Pack> opened = Pack::Open(pack->dir());
    EXPECT_TRUE(opened.ok()) << opened.status();
    auto arena = WholeArena::Load(opened->experts, team, nullptr);
    EXPECT_TRUE(arena.ok()) << arena.status();
    store = *std::move(arena);
    kernels = &SelectCpuKernels(DetectCpuFeatures());
    auto created = StorePool::Create(
        *store, *kernels, team,
        {.rows_max = rows_max, .ranks = kRanks, .decoded_bytes_max = decoded_bytes_max});
    EXPECT_TRUE(created.ok()) << created.status();
    pool = *std::move(created);
  }

  WorkerTeam team;
  std::unique_ptr<TemporaryPack> pack;
  std::unique_ptr<WholeArena> store;
  const CpuKernels* kernels = nullptr;
  std::unique_ptr<StorePool> pool;
};

struct Rows {  // activations, their quantised form and routes
  Rows(const Rig& rig, uint32_t rows, uint32_t hidden, uint32_t experts, uint64_t seed)
      : count(rows), x(size_t{rows} * hidden), routes(size_t{rows} * kRanks) {
    Prng prng(seed);
    for (float& v : x) v = static_cast<float>(prng.Uniform() * 2 - 1);
    for (uint32_t r = 0; r < rows; ++r) {
      routes[r * kRanks] = static_cast<uint32_t>(prng.Below(experts));
      routes[r * kRanks + 1] =
          (routes[r * kRanks] + 1 + static_cast<uint32_t>(prng.Below(experts - 1))) % experts;
    }
    const size_t blocks = ActivationBlocks(hidden);
    q.resize(rows * blocks * 32);
    scale.resize(rows * blocks);
    sum16.resize(rows * blocks * 2);
    rig.kernels->quantize_rows.fn({.x = x.data(),
                                   .x_stride = hidden,
                                   .rows = rows,
                                   .cols = hidden,
                                   .q = q.data(),
                                   .scale = scale.data(),
                                   .sum16 = sum16.data()});
    GroupRoutes({.expert = routes, .rows = rows, .ranks = kRanks, .expert_count = experts}, plan);
    hidden_ = hidden;
  }
  ExpertRows Input(bool reference) const {
    ExpertRows in{.x = x.data(), .rows = count};
    if (!reference) {
      in.quantized = {.q = q.data(),
                      .scale = scale.data(),
                      .sum16 = sum16.data(),
                      .rows = count,
                      .cols = hidden_};
    }
    return in;
  }
  uint32_t count;
  std::vector<float> x;
  std::vector<uint32_t> routes;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum16;
  WindowPlan plan;
  uint32_t hidden_ = 0;
};

// Largest error of the output against float64 experts, relative to the largest true value.
double RelativeError(const TinyCheckpoint& tiny, LayerId layer, const Rows& rows,
                     const std::vector<float>& output) {
  const uint32_t hidden = tiny.options().hidden;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < rows.routes.size(); ++i) {
    const float* x = rows.x.data() + i / kRanks * hidden;
    const std::vector<double> truth =
        tiny.expert(layer, ExpertId(rows.routes[i])).Evaluate(std::vector<double>(x, x + hidden));
    for (uint32_t j = 0; j < hidden; ++j) {
      worst = std::max(worst, std::fabs(output[i * hidden + j] - truth[j]));
      largest = std::max(largest, std::fabs(truth[j]));
    }
  }
  EXPECT_GT(largest, 0);
  return worst / largest;
}

struct FormatCase {
  TinyExperts experts;
  bool integer_dots;  // fast arithmetic quantises the activations
};

class ExpertPoolFormats : public testing::TestWithParam<FormatCase> {};

TEST_P(ExpertPoolFormats, EqualsFloat64Experts) {
  const TinyCheckpoint tiny({.experts = GetParam().experts});
  Rig rig(tiny, 2, 33);
  for (const uint32_t count : {1u, 4u, 33u}) {
    const Rows rows(rig, count, tiny.options().hidden, tiny.options().expert_count, count);
    for (const LayerId layer : {LayerId(0), LayerId(3)}) {
      std::vector<float> output(rows.routes.size() * tiny.options().hidden);
      ASSERT_TRUE(rig.pool->Run(layer, rows.plan, rows.Input(true), output).ok());
      EXPECT_LT(RelativeError(tiny, layer, rows, output), 1e-5) << "reference, rows " << count;
      ASSERT_TRUE(rig.pool->Run(layer, rows.plan, rows.Input(false), output).ok());
      // int8 steps of 1/127 of a block's largest value, twice.
      const double bound = GetParam().integer_dots ? 0.02 : 1e-5;
      EXPECT_LT(RelativeError(tiny, layer, rows, output), bound) << "fast, rows " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ExpertPoolFormats,
                         testing::Values(FormatCase{TinyExperts::kModelOptNvfp4, true},
                                         FormatCase{TinyExperts::kCompressedTensorsNvfp4, true},
                                         FormatCase{TinyExperts::kFp8, false},
                                         FormatCase{TinyExperts::kBf16Packed, false},
                                         FormatCase{TinyExperts::kF32Packed, false}));

TEST(ExpertPool, TeamAndCompanyDoNotChangeABit) {
  const TinyCheckpoint tiny({.experts = TinyExperts::kModelOptNvfp4});
  Rig one(tiny, 1, 9);
  Rig many(tiny, 5, 9);
  Rig two_nodes(tiny, 5, 9, uint64_t{16} << 20, {0, 0, 1, 1, 1});
  const uint32_t hidden = tiny.options().hidden;
  const Rows rows(one, 9, hidden, tiny.options().expert_count, 3);
  std::vector<float> together(rows.routes.size() * hidden);
  ASSERT_TRUE(one.pool->Run(LayerId(1), rows.plan, rows.Input(false), together).ok());
  std::vector<float> by_many(together.size());
  ASSERT_TRUE(many.pool->Run(LayerId(1), rows.plan, rows.Input(false), by_many).ok());
  EXPECT_EQ(by_many, together);
  std::vector<float> by_nodes(together.size());
  ASSERT_TRUE(two_nodes.pool->Run(LayerId(1), rows.plan, rows.Input(false), by_nodes).ok());
  EXPECT_EQ(by_nodes, together);
  for (uint32_t r = 0; r < 9; ++r) {  // each row alone
    Rows alone = rows;
    alone.count = 1;
    const std::span<const uint32_t> routes = std::span(rows.routes).subspan(r * kRanks, kRanks);
    GroupRoutes(
        {.expert = routes, .rows = 1, .ranks = kRanks, .expert_count = tiny.options().expert_count},
        alone.plan);
    ExpertRows input{.x = rows.x.data() + size_t{r} * hidden, .rows = 1};
    input.quantized = rows.Input(false).quantized.Slice(r, 1);
    std::vector<float> output(kRanks * hidden);
    ASSERT_TRUE(one.pool->Run(LayerId(1), alone.plan, input, output).ok());
    EXPECT_EQ(output, std::vector<float>(together.begin() + r * kRanks * hidden,
                                         together.begin() + (r + 1) * kRanks * hidden));
  }
}

// Raw sums beyond 65,504 and a SwiGLU product beyond it: what overflows in 16 bits before the
// global scale is applied.
TEST(ExpertPool, SumsBeyondSixteenBitsKeepTheirValue) {
  TinyCheckpoint tiny({.experts = TinyExperts::kModelOptNvfp4});
  const uint32_t hidden = tiny.options().hidden;
  const uint32_t width = tiny.options().width;
  for (uint32_t e = 0; e < tiny.options().expert_count; ++e) {
    for (const Projection p : {Projection::kGate, Projection::kUp, Projection::kDown}) {
      TinyNvfp4 m = tiny.nvfp4(LayerId(0), ExpertId(e), p);
      const size_t values = size_t{hidden} * width;
      m.codes.assign(values, 7);           // 6
      m.scales.assign(values / 16, 0x7E);  // 448
      m.divisor = p == Projection::kDown ? 1e9f : 512.0f;
      tiny.SetNvfp4(LayerId(0), ExpertId(e), p, m);
    }
  }
  Rig rig(tiny, 1, 1);
  Rows rows(rig, 1, hidden, tiny.options().expert_count, 1);
  std::fill(rows.x.begin(), rows.x.end(), 1.0f);  // gate and up: 64 * 6 * 448 / 512 = 336
  rig.kernels->quantize_rows.fn({.x = rows.x.data(),
                                 .x_stride = hidden,
                                 .rows = 1,
                                 .cols = hidden,
                                 .q = rows.q.data(),
                                 .scale = rows.scale.data(),
                                 .sum16 = rows.sum16.data()});
  for (const bool reference : {true, false}) {
    std::vector<float> output(rows.routes.size() * hidden);
    ASSERT_TRUE(rig.pool->Run(LayerId(0), rows.plan, rows.Input(reference), output).ok());
    EXPECT_NEAR(output[0], 336.0 * 336.0 * 32 * 6 * 448 / 1e9, 1e-3) << reference;
    EXPECT_LT(RelativeError(tiny, LayerId(0), rows, output), 1e-5) << reference;
  }
}

// The budget for decoded experts holds three of them: results stay right while it is emptied over
// and over.
TEST(ExpertPool, DecodedExpertsStayWithinTheirBudget) {
  const TinyCheckpoint tiny({.experts = TinyExperts::kModelOptNvfp4});
  const ExpertLayout f32{ExpertFormat::kF32, tiny.options().hidden, tiny.options().width};
  Rig rig(tiny, 1, 1, 3 * f32.blob_bytes());
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Rows rows(rig, 1, tiny.options().hidden, tiny.options().expert_count, seed);
    std::vector<float> output(rows.routes.size() * tiny.options().hidden);
    const LayerId layer(static_cast<uint32_t>(seed % 4));
    ASSERT_TRUE(rig.pool->Run(layer, rows.plan, rows.Input(true), output).ok());
    EXPECT_LT(RelativeError(tiny, layer, rows, output), 1e-5) << "seed " << seed;
  }
}

TEST(ExpertPool, LayerThatCannotFitTheDecodedBudgetIsRefused) {
  const TinyCheckpoint tiny({.experts = TinyExperts::kModelOptNvfp4});
  const ExpertLayout f32{ExpertFormat::kF32, tiny.options().hidden, tiny.options().width};
  Rig rig(tiny, 1, 1, f32.blob_bytes());
  const Rows rows(rig, 1, tiny.options().hidden, tiny.options().expert_count, 1);
  std::vector<float> output(rows.routes.size() * tiny.options().hidden);
  const absl::Status status = rig.pool->Run(LayerId(0), rows.plan, rows.Input(true), output);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

// Windows of all sizes in turn, on more workers than there are processors.
TEST(ExpertPool, AllocatesNothingInItsSteadyState) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer has its own operator new";
  const TinyCheckpoint tiny({.experts = TinyExperts::kModelOptNvfp4});
  Rig rig(tiny, 4, 9);
  const uint32_t hidden = tiny.options().hidden;
  std::vector<Rows> windows;
  for (const uint32_t count : {1u, 9u, 4u, 7u}) {
    windows.emplace_back(rig, count, hidden, tiny.options().expert_count, count);
  }
  std::vector<float> output(size_t{9} * kRanks * hidden);
  const uint64_t before = AllocationCount();
  for (int turn = 0; turn < 20; ++turn) {
    for (const Rows& rows : windows) {
      ASSERT_TRUE(rig.pool->Run(LayerId(1), rows.plan, rows.Input(false), output).ok());
    }
  }
  EXPECT_EQ(AllocationCount(), before);
}

TEST(ExpertPool, WorkersTimeIsEnteredUnderTheServiceOfTheExpert) {
  const TinyCheckpoint tiny({.experts = TinyExperts::kModelOptNvfp4});
  Rig rig(tiny, 2, 4);
  Rows rows(rig, 4, tiny.options().hidden, tiny.options().expert_count, 5);
  ASSERT_GE(rows.plan.experts.size(), 2u);
  for (PlannedExpert& planned : rows.plan.experts) planned.service = Service::kVram;
  rows.plan.experts[0].service = Service::kCpu;
  std::vector<float> output(rows.routes.size() * tiny.options().hidden);
  ASSERT_TRUE(rig.pool->Run(LayerId(2), rows.plan, rows.Input(false), output).ok());
  const LayerTimes& times = rig.pool->times();
  EXPECT_GT(times.service_ns[static_cast<uint32_t>(Service::kVram)], 0);
  EXPECT_GT(times.service_ns[static_cast<uint32_t>(Service::kCpu)], 0);
  EXPECT_EQ(times.service_ns[static_cast<uint32_t>(Service::kPcie)], 0);
  EXPECT_EQ(times.service_ns[static_cast<uint32_t>(Service::kSsd)], 0);
}

}  // namespace
}  // namespace hearth
