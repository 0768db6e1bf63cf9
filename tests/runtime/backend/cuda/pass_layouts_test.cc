// The host's share of a pass and its layouts: rings, tables, extents, plans. No card is needed.
#include "runtime/backend/cuda/pass_buffers.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

#include "pack/synth/synthetic_geometry.h"
#include "runtime/backend/cuda/backend_plan.h"
#include "runtime/backend/cuda/host_lookups.h"
#include "runtime/backend/cuda/matmul_launch.h"
#include "runtime/backend/cuda/memory_layout.h"
#include "runtime/backend/cuda/pass_table_image.h"
#include "runtime/backend/cuda/sequence_state.h"
#include "tests/support/hash_model.h"

namespace hearth {
namespace {

ModelGeometry FullGeometry() { return NamedGeometry(SyntheticModel::kFlashNext); }

TEST(MemoryLayout, ArraysAreAlignedAndDoNotOverlap) {
  MemoryLayout layout;
  float* a = nullptr;
  int8_t* b = nullptr;
  float* none = nullptr;
  uint64_t* c = nullptr;
  layout.Reserve(a, 3);
  layout.Reserve(b, 257);
  layout.Reserve(none, 0);
  layout.Reserve(c, 1);
  EXPECT_EQ(layout.bytes(), 256u + 512u + 256u);
  auto* const base = reinterpret_cast<std::byte*>(uint64_t{1} << 20);
  layout.Place(base);
  EXPECT_EQ(reinterpret_cast<std::byte*>(a), base);
  EXPECT_EQ(reinterpret_cast<std::byte*>(b), base + 256);
  EXPECT_EQ(reinterpret_cast<std::byte*>(c), base + 768);
  EXPECT_EQ(none, nullptr);
}

TEST(RingPieces, WrapOnce) {
  auto pieces = RingPieces(5, 3, 10);
  EXPECT_EQ(pieces[0].ring_row, 5u);
  EXPECT_EQ(pieces[0].rows, 3u);
  EXPECT_EQ(pieces[1].rows, 0u);
  pieces = RingPieces(28, 5, 10);
  EXPECT_EQ(pieces[0].ring_row, 8u);
  EXPECT_EQ(pieces[0].rows, 2u);
  EXPECT_EQ(pieces[1].row, 2u);
  EXPECT_EQ(pieces[1].ring_row, 0u);
  EXPECT_EQ(pieces[1].rows, 3u);
  pieces = RingPieces(7, 10, 10);
  EXPECT_EQ(pieces[0].rows + pieces[1].rows, 10u);
}

TEST(PassTable, RowsAreNumberedAcrossSegments) {
  std::vector<GpuSegment> table(kPassSegmentsMax);
  std::vector<uint32_t> row_segment(16, 99);
  uint32_t count = 0;
  PassImage image{
      .segments = table.data(), .row_segment = row_segment.data(), .segment_count = &count};
  const std::vector<GpuSegment> segments = {{.rows = 2, .base = 10, .pending_rows = 3, .parity = 1},
                                            {.rows = 1, .base = 0},
                                            {.rows = 4, .base = 77}};
  EXPECT_EQ(WritePassTable(segments, image), 7u);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(table[0].row_begin, 0u);
  EXPECT_EQ(table[1].row_begin, 2u);
  EXPECT_EQ(table[2].row_begin, 3u);
  EXPECT_EQ(table[0].pending_rows, 3u);
  EXPECT_EQ(table[0].parity, 1u);
  EXPECT_EQ(table[2].base, 77u);
  EXPECT_EQ(std::vector<uint32_t>(row_segment.begin(), row_segment.begin() + 8),
            (std::vector<uint32_t>{0, 0, 1, 2, 2, 2, 2, 99}));
}

TEST(PassImage, HeadIsTableAndRowsOnly) {
  const ModelGeometry g = FullGeometry();
  const GpuPassShape shape{.limits = {}, .rows_max = 256};
  PassImage image;
  MemoryLayout layout;
  ReservePassImage(layout, image, g, shape);
  std::vector<std::byte> memory(layout.bytes());
  layout.Place(memory.data());
  EXPECT_LT(ImageHeadBytes(image, 4, g.hidden), 4u * 2560 * 4 + 4096)
      << "a window sends no prompt's room";
  EXPECT_LE(ImageHeadBytes(image, 256, g.hidden) + 256u * g.ngram.embed_dim() * 4, memory.size());
}

TEST(SliceQuantized, FollowsQuantizedRowsStrides) {
  const QuantizedOut q{.q = reinterpret_cast<int8_t*>(4096),
                       .scale = reinterpret_cast<float*>(8192),
                       .sum16 = reinterpret_cast<int32_t*>(16384)};
  const QuantizedOut slice = SliceQuantized(q, 320, 3);  // 10 blocks
  EXPECT_EQ(slice.q - q.q, 3 * 320);
  EXPECT_EQ(slice.scale - q.scale, 3 * 10);
  EXPECT_EQ(slice.sum16 - q.sum16, 3 * 20);
  EXPECT_EQ(SliceQuantized({}, 320, 3).q, nullptr);
}

TEST(RingRows, HoldHistoryWindowAndDrafts) {
  const ModelGeometry g = FullGeometry();
  const uint32_t rows = RingRows(g, {.window_rows_max = 9});
  EXPECT_TRUE(std::has_single_bit(rows));
  EXPECT_GE(rows, 9u + 9u + 9u);
  EXPECT_LE((g.ngram.conv_taps - 1) * g.ngram.ngram_size, rows / 2);
}

TEST(SequenceState, GrowsWithTheContextAndTheFormat) {
  const ModelGeometry g = FullGeometry();
  SequenceShape shape{
      .context_tokens_max = 4096, .window_rows_max = 9, .rows_max = 256, .ring_rows = 32};
  const uint64_t small = SequenceStateBytes(g, shape);
  shape.context_tokens_max = 8192;
  const uint64_t large = SequenceStateBytes(g, shape);
  // 13 layers of K and V, 2 heads of 256 values in 2 bytes, and a block key of 128 for 4 positions.
  const uint64_t per_token = 13 * (2 * 2 * 256 * 2 + 128 * 4 / 4);
  EXPECT_NEAR(static_cast<double>(large - small), static_cast<double>(4096 * per_token),
              0.01 * 4096 * per_token);
  shape.kv_format = KvFormat::kInt8;
  EXPECT_LT(SequenceStateBytes(g, shape), large);
}

TEST(SequenceState, EveryLayerHasItsMixersArrays) {
  const ModelGeometry g = FullGeometry();
  const SequenceShape shape{
      .context_tokens_max = 64, .window_rows_max = 9, .rows_max = 16, .ring_rows = 32};
  MemoryLayout layout;
  SequenceState state;
  ReserveSequenceState(layout, state, g, shape);
  layout.Place(reinterpret_cast<std::byte*>(uint64_t{1} << 30));
  ASSERT_EQ(state.layers.size(), 49u);
  std::set<const void*> seen;
  for (uint32_t l = 0; l < 49; ++l) {
    const GpuLayerState& s = state.layers[l];
    const bool gdn = l < 48 && g.layers[l] == MixerKind::kGdn;
    EXPECT_EQ(s.delta_state != nullptr, gdn) << l;
    EXPECT_EQ(s.conv_ring != nullptr, gdn) << l;
    EXPECT_EQ(s.pending_qkv != nullptr, gdn) << l;
    EXPECT_EQ(s.k != nullptr, !gdn) << l;
    EXPECT_EQ(s.block_keys != nullptr, !gdn) << l;
    EXPECT_EQ(s.k_scale, nullptr) << l;
    EXPECT_TRUE(seen.insert(gdn ? static_cast<const void*>(s.delta_state) : s.k).second);
  }
  EXPECT_NE(state.ngram_ring, nullptr);
  EXPECT_NE(state.layer_table, nullptr);
}

TEST(PlanBackend, SaysWhatItTakesAndRefusesWhatItCannot) {
  const ModelGeometry g = FullGeometry();
  CudaBackendOptions options;
  options.context_tokens_max = 32768;
  const auto plan = PlanBackend(g, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->context_tokens_max, 32768u);
  EXPECT_GT(plan->device_buffer_bytes, plan->qsa_plan.workspace_bytes);
  const auto bytes = PlanCudaBackend(g, 1000, options, 4096);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->weights, 1000u);
  EXPECT_EQ(bytes->buffers, plan->device_buffer_bytes);
  EXPECT_EQ(bytes->sequence, SequenceStateBytes(g, SequenceShapeOf(*plan, 4096)));
  options.limits.window_rows_max = 17;
  EXPECT_EQ(PlanBackend(g, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(NoRoom, NamesWhatToLower) {
  const absl::Status full = absl::ResourceExhaustedError("3 GiB on the GPU");
  const absl::Status status = NoRoom(full, "state of a sequence", RoomFor::kSequence);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("--context"), absl::string_view::npos);
  EXPECT_EQ(NoRoom(absl::InternalError("x"), "state", RoomFor::kSequence).message(), "state: x");
}

}  // namespace
}  // namespace hearth
