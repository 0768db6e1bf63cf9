// LaunchDenseGemm on a GPU: Q8 products bit for bit against the definition on the CPU, row-major
// ones against fp64, and the bytes around every output. Tiles without a GPU.
#include "gpu_kernels/ops/dense/dense_gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "tests/gpu_kernels/dense/dense_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

constexpr MatrixFormat kQ8 = MatrixFormat::kQ8;
constexpr MatrixFormat kBf16 = MatrixFormat::kBf16;
constexpr MatrixFormat kF32 = MatrixFormat::kF32;

struct Launch {
  uint32_t cols;
  uint32_t rows;  // of x
  std::vector<std::pair<MatrixFormat, uint32_t>> matrices;
};

// Odd numbers of blocks, fewer steps than stages, tiles that are not full, both tiles of rows.
std::vector<Launch> Launches() {
  return {{32, 1, {{kQ8, 1}}},
          {32, 17, {{kQ8, 16}}},
          {96, 64, {{kQ8, 40}, {kF32, 5}}},
          {160, 65, {{kQ8, 128}, {kQ8, 145}, {kBf16, 3}}},
          {256, 130, {{kQ8, 300}, {kBf16, 130}, {kF32, 70}, {kQ8, 16}}},
          {96, 520, {{kQ8, 8200}}},  // large tiles on any card
          {320, 300, {{kQ8, 1000}}},
          {640, 257, {{kQ8, 256}, {kBf16, 64}}},
          {2560, 192, {{kQ8, 384}, {kBf16, 48}, {kBf16, 48}, {kF32, 16}}},
          {6144, 129, {{kQ8, 130}}},
          {10240, 40, {{kQ8, 320}, {kBf16, 4}}},
          {8, 3, {{kBf16, 4}, {kF32, 9}}},
          {40, 70, {{kBf16, 65}, {kF32, 64}}}};
}

class DenseGemm : public OnGpu {
 protected:
  static std::vector<HostMatrix> MatricesOf(Prng* prng, const Launch& launch) {
    std::vector<HostMatrix> matrices;
    for (const auto& [format, rows] : launch.matrices) {
      matrices.push_back(HostMatrix::Random(prng, format, rows, launch.cols));
    }
    return matrices;
  }
  std::vector<std::vector<float>> Run(const DenseOnGpu& on_gpu, uint32_t first, uint32_t count) {
    std::vector<std::vector<float>> answers;
    const DenseMatmulArgs args = on_gpu.Args(first, count);
    absl::Status status = on_gpu.Poison(stream());
    if (status.ok()) status = LaunchDenseGemm(args, room_, stream().view());
    for (uint32_t i = 0; status.ok() && i < args.output_count; ++i) {
      status = on_gpu.Read(i, &answers.emplace_back(), stream());
    }
    EXPECT_TRUE(status.ok()) << status;
    return answers;
  }
  // Room for products of fp16 from now on; its bytes say nothing.
  absl::Status GiveRoom(uint32_t rows, uint32_t cols) {
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory,
                            DeviceBuffer::Create(stream().view().gpu(), GemmRoomBytes(rows, cols)));
    room_memory_ = std::move(memory);
    room_ = {.data = room_memory_->data(), .bytes = room_memory_->bytes()};
    return FillBytes(*room_memory_, std::byte{0xFF}, stream().view());
  }

  std::optional<DeviceBuffer> room_memory_;
  GemmRoom room_;
};

// The definition, between guards like the answer.
std::vector<float> Q8OfCpu(const HostMatrix& w, const std::vector<float>& x, uint32_t rows) {
  const QuantizedBuffer xq = Quantized(x, rows, w.cols);
  std::vector<float> y = DenseOnGpu::OutputOf(w.rows, rows);
  ScalarKernels().matmul_q8({.w = w.bytes.data(),
                             .x = xq.View(),
                             .y = y.data() + kGuardFloats,
                             .y_stride = DenseOnGpu::Stride(w.rows),
                             .out_rows = w.rows,
                             .band_begin = 0,
                             .band_end = BandCount(w.rows)});
  return y;
}

// Every row within `tolerance` of the norm of its values; guards and padding unwritten.
void ExpectRowMajor(const HostMatrix& w, const std::vector<float>& x, uint32_t rows,
                    const std::vector<float>& y, double tolerance, const std::string& what) {
  const uint32_t stride = DenseOnGpu::Stride(w.rows);
  double difference = 0;
  double norm = 0;
  size_t unwritten = 0;
  for (const float v : y) unwritten += std::bit_cast<uint32_t>(v) == kUnwrittenBits;
  EXPECT_EQ(unwritten, y.size() - size_t{rows} * w.rows) << what;
  for (uint32_t n = 0; n < w.rows; ++n) {
    for (uint32_t t = 0; t < rows; ++t) {
      double sum = 0;
      for (uint32_t k = 0; k < w.cols; ++k) {
        sum += w.Value(n, k) * static_cast<double>(x[size_t{t} * w.cols + k]);
      }
      const double error = y[kGuardFloats + size_t{t} * stride + n] - sum;
      difference += error * error;
      norm += sum * sum;
    }
  }
  EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << what;
}

TEST_F(DenseGemm, Q8HasTheBitsOfTheCpuAndTheOthersAreTheProduct) {
  Prng prng(621);
  for (const Launch& launch : Launches()) {
    const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
    const std::vector<float> x = RandomFloats(&prng, size_t{launch.rows} * launch.cols, 1);
    absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, launch.rows, stream());
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
    const std::vector<std::vector<float>> answers = Run(*on_gpu, 0, launch.rows);
    if (HasFailure()) return;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const HostMatrix& w = matrices[i];
      const std::string what = absl::StrCat("cols ", w.cols, " rows of w ", w.rows, " format ",
                                            static_cast<uint32_t>(w.format), " rows ", launch.rows);
      if (w.format == kQ8) {
        const std::vector<float> expected = Q8OfCpu(w, x, launch.rows);
        ASSERT_EQ(std::memcmp(expected.data(), answers[i].data(), expected.size() * 4), 0) << what;
      } else {
        ExpectRowMajor(w, x, launch.rows, answers[i], 1e-5, what);
      }
    }
  }
}

TEST_F(DenseGemm, BitsOfARowDependOnNothingElse) {
  Prng prng(622);
  const Launch launch = {320, 200, {{kQ8, 100}, {kBf16, 70}, {kF32, 20}}};
  const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
  const std::vector<float> x = RandomFloats(&prng, size_t{launch.rows} * launch.cols, 1);
  absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, launch.rows, stream());
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  const std::vector<std::vector<float>> all = Run(*on_gpu, 0, launch.rows);
  if (HasFailure()) return;
  for (const auto& [first, count] : {std::pair{0u, 1u}, {130u, 70u}, {57u, 33u}}) {
    const std::vector<std::vector<float>> some = Run(*on_gpu, first, count);
    if (HasFailure()) return;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const uint32_t stride = DenseOnGpu::Stride(matrices[i].rows);
      for (uint32_t t = first; t < first + count; ++t) {
        const size_t at = kGuardFloats + size_t{t} * stride;
        ASSERT_EQ(std::memcmp(&some[i][at], &all[i][at], matrices[i].rows * 4), 0)
            << "output " << i << " row " << t;
      }
    }
  }
}

// Rows of very different sizes, each by itself: what is rounded is a row's own. Some of the rows,
// so that the definition is done soon.
TEST_F(DenseGemm, ProductsOfHalvesAreCloseToThoseOfTheCpu) {
  const std::vector<Launch> launches = {
      {32, 256, {{kQ8, 1}}},       {96, 400, {{kQ8, 300}, {kQ8, 40}, {kBf16, 5}}},
      {320, 257, {{kQ8, 1000}}},   {640, 300, {{kQ8, 256}, {kBf16, 64}}},
      {2560, 300, {{kQ8, 24000}}},  // the large tile
      {10240, 270, {{kQ8, 320}}}};
  Prng prng(624);
  for (const Launch& launch : launches) {
    const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
    std::vector<float> x = RandomFloats(&prng, size_t{launch.rows} * launch.cols, 1);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::ldexp(x[i], (static_cast<int>(i / launch.cols % 5) - 2) * 24);
    }
    absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, launch.rows, stream());
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
    const absl::Status room = GiveRoom(launch.rows, launch.cols);
    ASSERT_TRUE(room.ok()) << room;
    const std::vector<std::vector<float>> answers = Run(*on_gpu, 0, launch.rows);
    if (HasFailure()) return;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const HostMatrix& w = matrices[i];
      const uint32_t stride = DenseOnGpu::Stride(w.rows);
      size_t unwritten = 0;
      for (const float v : answers[i]) unwritten += std::bit_cast<uint32_t>(v) == kUnwrittenBits;
      EXPECT_EQ(unwritten, answers[i].size() - size_t{launch.rows} * w.rows);
      if (w.format != kQ8) continue;
      for (const uint32_t t : {0u, 1u, 127u, 128u, launch.rows - 1}) {
        const std::vector<float> row(x.begin() + t * launch.cols,
                                     x.begin() + (t + 1) * launch.cols);
        const std::vector<float> expected = Q8OfCpu(w, row, 1);
        double difference = 0, norm = 0;
        for (uint32_t n = 0; n < w.rows; ++n) {
          const double want = expected[kGuardFloats + n];
          const double error = answers[i][kGuardFloats + size_t{t} * stride + n] - want;
          difference += error * error;
          norm += want * want;
        }
        const double bound = w.rows < 16 ? 5e-3 : 6e-4;  // one output may be small by chance
        EXPECT_LT(std::sqrt(difference / norm), bound) << w.rows << " x " << w.cols << " row " << t;
      }
    }
  }
}

TEST_F(DenseGemm, BitsOfARowOfHalvesDependOnNothingElse) {
  Prng prng(625);
  const Launch launch = {1024, 3000, {{kQ8, 5000}}};
  const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
  const std::vector<float> x = RandomFloats(&prng, size_t{launch.rows} * launch.cols, 1);
  absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, launch.rows, stream());
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  const absl::Status room = GiveRoom(launch.rows, launch.cols);
  ASSERT_TRUE(room.ok()) << room;
  const std::vector<float> all = Run(*on_gpu, 0, launch.rows).at(0);
  for (const auto& [first, count] : {std::pair{0u, 256u}, {401u, 299u}}) {  // both tiles
    const std::vector<float> some = Run(*on_gpu, first, count).at(0);
    for (uint32_t t = first; t < first + count; ++t) {
      const size_t at = kGuardFloats + size_t{t} * DenseOnGpu::Stride(5000);
      ASSERT_EQ(std::memcmp(&some[at], &all[at], 5000 * 4), 0) << "row " << t;
    }
  }
}

TEST_F(DenseGemm, AppliesTheActivationOfEachOutput) {
  Prng prng(623);
  const Launch launch = {64, 20, {{kQ8, 48}, {kBf16, 9}}};
  const std::vector<HostMatrix> matrices = MatricesOf(&prng, launch);
  const std::vector<float> x = RandomFloats(&prng, size_t{launch.rows} * launch.cols, 2);
  absl::StatusOr<DenseOnGpu> on_gpu = DenseOnGpu::Create(matrices, x, launch.rows, stream());
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  const std::vector<std::vector<float>> plain = Run(*on_gpu, 0, launch.rows);
  on_gpu->output(0)->activation = Activation::kSilu;
  on_gpu->output(1)->activation = Activation::kSigmoid;
  on_gpu->output(1)->scale_in = 0.5f;
  on_gpu->output(1)->scale_out = 2.0f;
  const std::vector<std::vector<float>> activated = Run(*on_gpu, 0, launch.rows);
  if (HasFailure()) return;
  for (uint32_t t = 0; t < launch.rows; ++t) {
    for (uint32_t n = 0; n < 48; ++n) {
      const size_t at = kGuardFloats + size_t{t} * DenseOnGpu::Stride(48) + n;
      const double v = plain[0][at];
      EXPECT_NEAR(activated[0][at], v / (1 + std::exp(-v)), 1e-6 * (1 + std::abs(v)));
    }
    for (uint32_t n = 0; n < 9; ++n) {
      const size_t at = kGuardFloats + size_t{t} * DenseOnGpu::Stride(9) + n;
      EXPECT_NEAR(activated[1][at], 2 / (1 + std::exp(-0.5 * plain[1][at])), 1e-6);
    }
  }
}

TEST(GemmRoom, HoldsWholeTilesAndAFactorForEachRow) {
  EXPECT_EQ(GemmRoomBytes(1, 32), 128u * 128 + 4);
  EXPECT_EQ(GemmRoomBytes(129, 2560), 2u * 128 * 2560 * 2 + 129 * 4);
}

TEST(GemmTiles, CoverEveryOutputAndRow) {
  const MatmulOutput outputs[] = {{.w = {.rows = 1}}, {.w = {.rows = 300}}, {.w = {.rows = 128}}};
  for (uint32_t rows = 1; rows <= 700; ++rows) {
    const GemmTileMap map = MapTiles(outputs, rows, kQ8LargeTile);
    EXPECT_EQ(map.first_tile[0], 0u);
    EXPECT_EQ(map.first_tile[1], 1u);
    EXPECT_EQ(map.first_tile[2], 4u);
    EXPECT_EQ(map.weight_tiles, 5u);
    ASSERT_GE(map.row_tiles * kQ8LargeTile.rows, rows);
    ASSERT_LT((map.row_tiles - 1) * kQ8LargeTile.rows, rows);
  }
  EXPECT_EQ(ChooseQ8Tile(outputs, 128, 2), kQ8LargeTile);  // five tiles
  EXPECT_EQ(ChooseQ8Tile(outputs, 128, 3), kQ8SmallTile);
}

}  // namespace
}  // namespace hearth
