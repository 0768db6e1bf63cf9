// Sparse attention (QSA) of one layer on a GPU, from the projections of a pass's rows to the rows
// that the output projection reads. Formulas: cpu_kernels/ops/{attention,elementwise,activation}.h,
// composed as runtime/backend/cpu/qsa_mixer.cc does.
//
//   LaunchQsaAppend   norms and rotates queries, keys and indexer queries, appends keys, values and
//                     raw indexer keys, and pools the blocks that become complete
//   LaunchQsaSelect   scores complete blocks and chooses the best of each row
//   LaunchQsaAttend   softmax attention over the chosen positions, gate, quantisation
//
// In this order on one stream. All read the pass from device memory, so that a captured graph
// serves any positions; nothing waits for the host or allocates. A pass of at most kQsaWindowRows
// rows is a window: the bits of a row depend on its own inputs alone. Longer passes are prompts:
// their bits may differ from a window's in the last places. All launches are deterministic.
// Thread-compatible; plans are pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/format/geometry.h"

namespace hearth {

inline constexpr uint32_t kQsaWindowRows = 16;      // rows of a window at most
inline constexpr uint32_t kQsaRowsMax = 65535;      // rows of any pass
inline constexpr uint32_t kQsaSplitPositions = 64;  // of one share of a row's attention
inline constexpr uint32_t kQsaGroupMax = 16;        // query heads of one K/V head
inline constexpr uint32_t kQsaHeadDimMax = 256;     // a multiple of 8
inline constexpr uint32_t kQsaIndexerDimMax = 128;  // a multiple of 4
inline constexpr uint32_t kQsaIndexerHeadsMax = 8;
inline constexpr uint32_t kQsaBlockTokensMax = 16;
inline constexpr uint32_t kQsaBlocksMax = 1u << 16;  // complete blocks of a context
inline constexpr uint32_t kQsaPositionsMax = 4096;   // that a row attends to

// What: shapes and bounds of every pass.
struct QsaDesc {
  AttentionGeometry attention;
  float norm_epsilon = 0;
  KvFormat kv_format = KvFormat::kBf16;
  uint32_t rows_max = 0;     // of a pass
  uint32_t context_max = 0;  // positions of a sequence
};

// How the workspace is cut; it is shared by all layers and passes of one stream.
struct QsaPlan {
  uint32_t score_rows = 0;    // rows that are scored together; a longer pass takes several turns
  uint32_t score_stride = 0;  // blocks of a row of scores
  uint32_t split_count = 0;   // shares of a window's row
  // Scores (score_rows, score_stride) start at 0.
  uint64_t chosen_offset_bytes = 0;   // uint32 (rows_max, block_count_max), ascending
  uint64_t partial_offset_bytes = 0;  // fp32 (rows, shares, head_count, head_dim)
  uint64_t softmax_offset_bytes = 0;  // fp32 (rows, shares, head_count, 2): maximum, sum
  uint64_t workspace_bytes = 0;
};

// InvalidArgument, naming the shape and its bound, when the kernels do not cover it.
absl::StatusOr<QsaPlan> PlanQsa(const QsaDesc& desc);

// Whether a pass whose last row stands at `position` may have a row that must choose its blocks;
// otherwise LaunchQsaSelect has nothing to do and may be left out.
bool QsaMustSelect(const AttentionGeometry& attention, uint32_t position);

// Bytes of one sequence's share of one layer: k and v each; k_scale and v_scale each (kInt8 only);
// the ring of raw keys; the block keys. Every one 256-byte aligned in device memory.
struct QsaStateBytes {
  uint64_t kv = 0;
  uint64_t kv_scale = 0;
  uint64_t raw_keys = 0;
  uint64_t block_keys = 0;
};
QsaStateBytes QsaStateBytesOf(const QsaDesc& desc, uint32_t ring_rows);

// Device addresses; rows are packed. fp32 rows are 16-byte aligned.
struct QsaAppendArgs {
  GpuPassTable pass;
  uint32_t layer = 0;  // of GpuSegment::layers
  // Projections. qg and index come back normalised and rotated; gates and raw keys as they were.
  float* qg = nullptr;       // (rows, head_count, 2, head_dim): query, gate
  const float* k = nullptr;  // (rows, kv_head_count, head_dim)
  const float* v = nullptr;
  float* index = nullptr;               // (rows, indexer_head_count + 1, dim): queries, raw key
  const float* q_norm = nullptr;        // (head_dim); each norm multiplies by 1 + w
  const float* k_norm = nullptr;        // (head_dim)
  const float* index_q_norm = nullptr;  // (indexer_head_dim)
  const float* index_k_norm = nullptr;
  const float* cos = nullptr;  // (rows, rotary_dim / 2) at each row's position
  const float* sin = nullptr;
  const float* block_cos = nullptr;  // the same at the first position of each row's block:
  const float* block_sin = nullptr;  // position / block_tokens * block_tokens
};

// Rows of one segment whose positions lie in one block are written by one pass or by several that
// follow each other. A segment's raw keys of positions [base - block_tokens + 1, base) lie in its
// ring.
absl::Status LaunchQsaAppend(const QsaDesc& desc, const QsaAppendArgs& args, CudaStreamView stream);

struct QsaSelectArgs {
  GpuPassTable pass;
  uint32_t layer = 0;
  const float* index = nullptr;    // as LaunchQsaAppend leaves it
  std::byte* workspace = nullptr;  // 256-byte aligned
};

// For each row with more complete blocks than block_count_max: the block_count_max best scores, of
// equal ones those of the lower blocks. With scores that are not numbers the choice is unspecified
// but lies in range. Rows with fewer blocks take all positions; nothing is written for them.
absl::Status LaunchQsaSelect(const QsaDesc& desc, const QsaPlan& plan, const QsaSelectArgs& args,
                             CudaStreamView stream);

struct QsaAttendArgs {
  GpuPassTable pass;
  uint32_t layer = 0;
  const float* qg = nullptr;  // as LaunchQsaAppend leaves it
  std::byte* workspace = nullptr;
  float* out = nullptr;  // (rows, head_count * head_dim), gated
  int8_t* q = nullptr;   // the same as QuantizedRows
  float* scale = nullptr;
  int32_t* sum16 = nullptr;
};

// Keys and values meet queries and probabilities that were split into two bf16 terms (16 bits of
// mantissa), products are exact, sums fp32.
absl::Status LaunchQsaAttend(const QsaDesc& desc, const QsaPlan& plan, const QsaAttendArgs& args,
                             CudaStreamView stream);

}  // namespace hearth
