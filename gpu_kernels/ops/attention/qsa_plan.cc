// What the QSA kernels cover, and how their workspace is cut. Pure.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/attention/qsa.h"

namespace hearth {
namespace {

constexpr uint64_t kAlignmentBytes = 256;
constexpr uint64_t kScoreBytesMax = 64ull << 20;  // what rows that are scored together may take

constexpr uint64_t Aligned(uint64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

struct Bound {
  const char* name;
  uint64_t value;
  uint64_t min;
  uint64_t max;
  uint64_t multiple = 1;
};

absl::Status Check(const Bound& bound) {
  if (bound.value >= bound.min && bound.value <= bound.max && bound.value % bound.multiple == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "attention on a GPU: ", bound.name, " is ", bound.value, ", and the kernels take ", bound.min,
      " to ", bound.max, " in steps of ", bound.multiple, ": run this model on the CPU backend"));
}

absl::Status CheckDesc(const QsaDesc& desc) {
  const AttentionGeometry& a = desc.attention;
  const Bound first[] = {
      {"kv_head_count", a.kv_head_count, 1, 65535},
      {"head_dim", a.head_dim, 8, kQsaHeadDimMax, 8},
      {"block_tokens", a.block_tokens, 1, kQsaBlockTokensMax},
      {"rows_max", desc.rows_max, 1, kQsaRowsMax},
  };
  for (const Bound& bound : first) {
    if (absl::Status status = Check(bound); !status.ok()) return status;
  }
  const Bound then[] = {
      {"head_count", a.head_count, a.kv_head_count, uint64_t{kQsaGroupMax} * a.kv_head_count,
       a.kv_head_count},
      {"indexer_head_count", a.indexer_head_count, 1, kQsaIndexerHeadsMax},
      {"indexer_head_dim", a.indexer_head_dim, 4, kQsaIndexerDimMax, 4},
      {"rotary_dim", a.rotary_dim, 2, std::min(a.head_dim, a.indexer_head_dim), 2},
      {"block_count_max", a.block_count_max, 1,
       (kQsaPositionsMax - a.block_tokens) / a.block_tokens},
      {"context_max", desc.context_max, 1, uint64_t{kQsaBlocksMax} * a.block_tokens},
  };
  for (const Bound& bound : then) {
    if (absl::Status status = Check(bound); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QsaPlan> PlanQsa(const QsaDesc& desc) {
  if (absl::Status status = CheckDesc(desc); !status.ok()) return status;
  const AttentionGeometry& a = desc.attention;
  QsaPlan plan;
  // Whole 16-byte lines, so that a row of scores is read in them.
  plan.score_stride = (desc.context_max / a.block_tokens + 3) / 4 * 4;
  const uint64_t row_bytes = uint64_t{plan.score_stride} * sizeof(float);
  const bool selects = desc.context_max / a.block_tokens > a.block_count_max;
  plan.score_rows = 0;
  if (selects) {
    const uint64_t fit = std::max<uint64_t>(kScoreBytesMax / row_bytes, kQsaWindowRows);
    plan.score_rows = static_cast<uint32_t>(std::min<uint64_t>(desc.rows_max, fit));
  }
  const uint32_t positions =
      std::min(desc.context_max, (a.block_count_max + 1) * a.block_tokens - 1);
  plan.split_count = (positions + kQsaSplitPositions - 1) / kQsaSplitPositions;

  const uint64_t shares = std::max<uint64_t>(
      uint64_t{std::min(desc.rows_max, kQsaWindowRows)} * plan.split_count, desc.rows_max);
  plan.chosen_offset_bytes = Aligned(plan.score_rows * row_bytes);
  plan.partial_offset_bytes =
      plan.chosen_offset_bytes +
      Aligned(selects ? uint64_t{desc.rows_max} * a.block_count_max * sizeof(uint32_t) : 0);
  plan.softmax_offset_bytes =
      plan.partial_offset_bytes + Aligned(shares * a.head_count * a.head_dim * sizeof(float));
  plan.workspace_bytes =
      plan.softmax_offset_bytes + Aligned(shares * a.head_count * 2 * sizeof(float));
  return plan;
}

bool QsaMustSelect(const AttentionGeometry& attention, uint32_t position) {
  return (uint64_t{position} + 1) / attention.block_tokens > attention.block_count_max;
}

QsaStateBytes QsaStateBytesOf(const QsaDesc& desc, uint32_t ring_rows) {
  const AttentionGeometry& a = desc.attention;
  const uint64_t heads = uint64_t{desc.context_max} * a.kv_head_count;
  const bool int8 = desc.kv_format == KvFormat::kInt8;
  const uint64_t key_bytes = uint64_t{a.indexer_head_dim} * sizeof(float);
  return {.kv = heads * a.head_dim * (int8 ? 1 : 2),
          .kv_scale = int8 ? heads * sizeof(float) : 0,
          .raw_keys = ring_rows * key_bytes,
          .block_keys = desc.context_max / a.block_tokens * key_bytes};
}

}  // namespace hearth
