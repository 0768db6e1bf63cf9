// Cuts of window products: segments from the columns alone, shared memory within its limits, every
// unit dealt, refusals that name what does not fit.
#include "gpu_kernels/ops/dense/dense_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

constexpr GpuLimits kH200 = {.multiprocessor_count = 132, .shared_bytes_per_block_max = 232'448};
constexpr GpuLimits kConsumer = {.multiprocessor_count = 84, .shared_bytes_per_block_max = 101'376};

// Addresses that are only counted.
template <class T>
T* At(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

DenseMatmulArgs ArgsOf(uint32_t rows, uint32_t cols, std::vector<DeviceMatrix> matrices) {
  DenseMatmulArgs args;
  args.rows = rows;
  args.cols = cols;
  args.x = {.x = At<float>(1 << 20),
            .x_stride = cols,
            .q = At<int8_t>(1 << 21),
            .scale = At<float>(1 << 22)};
  for (DeviceMatrix& w : matrices) {
    w.cols = cols;
    w.data = At<std::byte>(1 << 23);
    args.outputs[args.output_count++] = {.w = w, .y = At<float>(1 << 24), .y_stride = w.rows};
  }
  return args;
}

const DeviceMatrix kQ8Matrix = {.format = MatrixFormat::kQ8, .rows = 640};
const DeviceMatrix kBf16Matrix = {.format = MatrixFormat::kBf16, .rows = 50};

TEST(DensePlan, SegmentsShareTheChunksEvenly) {
  EXPECT_EQ(MatmulSegments(320), 1u);
  EXPECT_EQ(MatmulSegments(640), 2u);
  EXPECT_EQ(MatmulSegments(2560), 5u);
  EXPECT_EQ(MatmulSegments(6144), 12u);
  EXPECT_EQ(MatmulSegments(10240), 14u);
  for (uint32_t cols = 8; cols <= kMatmulColsMax; cols += 8) {
    const uint32_t chunks = (cols + kMatmulChunkCols - 1) / kMatmulChunkCols;
    const uint32_t segments = MatmulSegments(cols);
    ASSERT_GE(segments, 1u);
    ASSERT_LE(segments, kMatmulSegmentsMax);
    ASSERT_LE(segments, chunks);
    ASSERT_EQ((chunks + segments - 1) / segments * (segments - 1) < chunks, true) << cols;
  }
}

TEST(DensePlan, CountsTheUnitsOfBothKinds) {
  const auto cut = CutDenseMatmul(ArgsOf(4, 2560, {kQ8Matrix, kBf16Matrix, kQ8Matrix}), kH200);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->band_count, 80u);
  EXPECT_EQ(cut->row_unit_count, 13u);
  EXPECT_EQ(cut->threads, 160u);
  EXPECT_EQ(cut->rows_max, 4u);
  // 93 jobs in one round, then in rounds of equal length.
  EXPECT_EQ(MatmulBlocks(*cut, 4, 4, kH200), 93u);
  EXPECT_EQ(MatmulBlocks(*cut, 4, 4, {.multiprocessor_count = 10}), 31u);
  EXPECT_EQ(MatmulBlocks(*cut, 16, 4, kH200), 106u);
  EXPECT_EQ(MatmulRounds(*cut, 4, 93), 1u);
  EXPECT_EQ(MatmulRounds(*cut, 4, 31), 3u);
}

TEST(DensePlan, EveryChunkHasItsPlaceInOneWarp) {
  for (uint32_t cols = 32; cols <= kMatmulColsMax; cols += 32) {
    const auto cut = CutDenseMatmul(ArgsOf(1, cols, {kQ8Matrix}), kH200);
    ASSERT_TRUE(cut.ok()) << cut.status();
    const uint32_t chunks = (cols + kMatmulChunkCols - 1) / kMatmulChunkCols;
    ASSERT_GE(cut->segments * cut->places / kMatmulPlacesPerChunk, chunks);
    ASSERT_LT(cut->segments * (cut->places / kMatmulPlacesPerChunk - 1), chunks);
    ASSERT_EQ(cut->threads, 32 * cut->segments * cut->teams);
  }
}

TEST(DensePlan, ManyRowsOfLongColumnsTakeSeveralLaunchesWhereMemoryIsShort) {
  const auto large = CutDenseMatmul(ArgsOf(8, 10240, {kQ8Matrix}), kH200);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->rows_max, 8u);
  EXPECT_EQ(large->slots, kMatmulSlotsMax);
  const auto small = CutDenseMatmul(ArgsOf(8, 10240, {kQ8Matrix}), kConsumer);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_LT(small->rows_max, 8u);
  for (uint32_t cols = 32; cols <= 12'288; cols += 992) {
    for (uint32_t rows = 1; rows <= kMatmulRowsMax; ++rows) {
      const auto cut = CutDenseMatmul(ArgsOf(rows, cols, {kQ8Matrix, kBf16Matrix}), kConsumer);
      ASSERT_TRUE(cut.ok()) << cut.status();
      for (uint32_t r = 1; r <= cut->rows_max; ++r) {
        const MatmulSharedLayout layout = LayOutMatmul(*cut, r, cols);
        ASSERT_LE(layout.bytes, kConsumer.shared_bytes_per_block_max);
        ASSERT_EQ(layout.sums_offset_bytes % 16, 0u);
        ASSERT_EQ(layout.slots_offset_bytes % 16, 0u);
      }
      ASSERT_LE(cut->threads, kMatmulThreadsMax);
    }
  }
  EXPECT_EQ(CutDenseMatmul(ArgsOf(1, 32, {kQ8Matrix}), {132, 1024}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DensePlan, LongColumnsOfFewRowsTakeClusters) {
  const auto cut_of = [](uint32_t rows, uint32_t cols, uint32_t w_rows) {
    const DeviceMatrix w = {.format = MatrixFormat::kQ8, .rows = w_rows};
    return *CutDenseMatmul(ArgsOf(rows, cols, {w}), kH200);
  };
  EXPECT_EQ(MatmulClusterBlocks(cut_of(1, 10240, 320), 1, kH200), 7u);
  EXPECT_EQ(MatmulClusterBlocks(cut_of(4, 10240, 320), 4, kH200), 7u);
  EXPECT_EQ(MatmulClusterBlocks(cut_of(1, 6144, 2560), 1, kH200), 6u);
  EXPECT_EQ(MatmulClusterBlocks(cut_of(4, 6144, 2560), 4, kH200), 0u);
  EXPECT_EQ(MatmulClusterBlocks(cut_of(1, 6144, 12288), 1, kH200), 0u);
  EXPECT_EQ(MatmulClusterBlocks(cut_of(1, 2560, 320), 1, kH200), 0u);
  for (uint32_t cols = 4096; cols <= kMatmulColsMax; cols += 992) {
    for (uint32_t rows = 1; rows <= kMatmulRowsMax; ++rows) {
      const DenseMatmulCut cut = cut_of(rows, cols, 16);
      ASSERT_LE(MatmulClusterBlocks(cut, rows, kH200), 8u);
      const ClusterSharedLayout layout = LayOutClusterMatmul(cut, rows);
      ASSERT_LE(layout.bytes, kH200.shared_bytes_per_block_max);
      ASSERT_EQ(layout.x_offset_bytes % 16, 0u);
      ASSERT_EQ(layout.warp_bytes % 16, 0u);
    }
  }
}

TEST(DensePlan, NamesWhatDoesNotFit) {
  const auto error = [](const DenseMatmulArgs& args) {
    return std::string(CheckDenseProduct(args, kMatmulRowsMax).message());
  };
  EXPECT_EQ(error(ArgsOf(16, 64, {kQ8Matrix})), "");
  EXPECT_THAT(error(ArgsOf(0, 64, {kQ8Matrix})), testing::HasSubstr("1 to 16 rows"));
  EXPECT_THAT(error(ArgsOf(17, 64, {kQ8Matrix})), testing::HasSubstr("found 17"));
  EXPECT_THAT(error(ArgsOf(1, 64, {})), testing::HasSubstr("1 to 6 matrices"));
  EXPECT_THAT(error(ArgsOf(1, 40, {kQ8Matrix})), testing::HasSubstr("multiple of 32"));
  EXPECT_THAT(error(ArgsOf(1, 12, {kBf16Matrix})), testing::HasSubstr("multiple of 8"));
  DenseMatmulArgs args = ArgsOf(1, 64, {kQ8Matrix});
  args.x.q = nullptr;
  EXPECT_THAT(error(args), testing::HasSubstr("LaunchQuantizeRows"));
  args = ArgsOf(1, 64, {kBf16Matrix});
  args.x.x_stride = 66;
  EXPECT_THAT(error(args), testing::HasSubstr("multiple of 4"));
  args = ArgsOf(1, 64, {kBf16Matrix});
  args.outputs[0].w.cols = 32;
  EXPECT_THAT(error(args), testing::HasSubstr("share x"));
  args = ArgsOf(1, 64, {kBf16Matrix});
  args.outputs[0].y_stride = 49;
  EXPECT_THAT(error(args), testing::HasSubstr("stride is 49"));
}

TEST(DensePlan, RowClassesHoldTheirRows) {
  for (uint32_t rows = 1; rows <= kMatmulRowsMax; ++rows) {
    EXPECT_GE(MatmulRowsClass(rows), rows);
    EXPECT_LT(MatmulRowsClass(rows), rows < 4 ? 5 : 2 * rows);
  }
}

}  // namespace
}  // namespace hearth
