// What the blocks of the dense path share during a pass: the model, the kernels, the rows at hand
// and the scratch buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cpu/cpu_sequence.h"
#include "runtime/backend/cpu/projection.h"
#include "runtime/base/scratch_arena.h"
#include "runtime/base/worker_team.h"
#include "runtime/model/weights.h"

namespace hearth {

// Rows [row_begin, row_begin + rows) of the pass belong to `sequence`, at positions base, base + 1,
// ...
struct PassSegment {
  CpuSequence* sequence = nullptr;
  uint32_t row_begin = 0;
  uint32_t rows = 0;
  uint32_t base = 0;
};

// All buffers are for PassLimits' rows; D = streams * hidden. Shapes are (rows, ...).
struct PassBuffers {
  std::span<float> h;           // D: the residual streams
  std::span<float> hn;          // D: normalised
  std::span<float> gate;        // D
  std::span<float> low;         // hc_rank
  std::span<float> inject;      // streams
  std::span<float> u;           // hidden: what a block reads
  std::span<float> y;           // hidden: what a block wrote
  QuantizeBuffers quantized;    // for the widest activation
  QuantizeBuffers u_quantized;  // for u, kept through the MoE half

  // GDN
  std::span<float> gdn_projected;  // channels
  std::span<float> conv_in;        // (taps - 1 + rows, channels)
  std::span<float> qkv;            // channels
  std::span<float> z;              // value_dim
  std::span<float> a;              // value heads
  std::span<float> b;              // value heads
  std::span<float> decay;          // value heads
  std::span<float> mixed;          // max(value_dim, heads * head_dim): what out_proj / o_proj reads
  std::span<float> chunk_scratch;  // (workers, GdnChunkedScratchFloats)

  // QSA
  std::span<float> qg;  // heads * 2 * head_dim
  std::span<float> k;   // kv_heads * head_dim
  std::span<float> v;
  std::span<float> index;  // (indexer_heads + 1) * indexer_dim
  std::span<float> cos;    // rotary_dim / 2, of each row's position
  std::span<float> sin;
  std::span<float> block_cos;  // rotary_dim / 2, one row
  std::span<float> block_sin;
  std::span<uint32_t> positions;       // chosen_max: ascending
  std::span<uint32_t> position_count;  // 1
  std::span<float> attend_scores;      // (workers, query heads of one K/V head, chosen_max)
  std::span<float> block_scores;       // (workers, blocks)
  std::span<uint64_t> top_k_scratch;   // (workers, max(blocks, experts))
  std::span<uint32_t> chosen_blocks;   // (workers, block_count_max)

  // n-gram
  std::span<uint64_t> ngram_rows;  // heads
  std::span<float> ngram_embed;    // embed_dim
  std::span<float> ngram_key;      // D
  std::span<float> ngram_query;    // D
  std::span<float> ngram_value;    // hidden
  std::span<float> ngram_conv_in;  // (history + rows, D)

  // MoE
  std::span<float> router_logits;    // experts
  std::span<uint32_t> route_expert;  // ranks
  std::span<float> route_weight;     // ranks
  std::span<float> ahead_u;          // hidden; rows of a window, as all of ahead_
  std::span<float> ahead_inject;     // streams
  std::span<uint32_t> ahead_expert;  // ranks
  std::span<float> shared_gate;      // shared_width
  std::span<float> shared_up;        // shared_width
  std::span<float> shared_y;         // hidden
  std::span<float> shared_scale;     // 1
  std::span<float> expert_output;    // ranks * hidden

  // MTP
  std::span<float> draft_embed;   // hidden
  std::span<float> draft_hidden;  // D
};

struct PassContext {
  const ModelWeights& weights;
  const CpuKernels& kernels;
  WorkerTeam& team;
  const Projector& projector;
  const NgramFile* ngram_file = nullptr;
  PassLimits limits;
  Arithmetic arithmetic = Arithmetic::kFast;
  PassBuffers buffers;
  uint32_t chosen_max = 0;  // most positions that one row attends to
  uint32_t blocks_max = 0;  // most blocks of a context

  // The pass at hand.
  std::vector<PassSegment> segments;  // reserved; bounded by the rows
  uint32_t rows = 0;
  Phase phase = Phase::kWindow;
  bool draft = false;
  double rope_theta = 0;

  const ModelGeometry& geometry() const { return weights.geometry; }
};

// Runs body(row_begin, row_end) over the rows of the pass, on all workers when there are enough
// rows.
template <class Body>
void ForRowRanges(PassContext& pass, Body&& body) {
  constexpr uint32_t kParallelRowsMin = 16;
  if (pass.rows < kParallelRowsMin) {
    body(0, pass.rows);
  } else {
    pass.team.ForRanges(pass.rows, 1,
                        [&](uint32_t, uint32_t begin, uint32_t end) { body(begin, end); });
  }
}

// u = read of the hyper-connection over h (and inject, unless it is a final mixer).
void ReadHyperConnection(PassContext& pass, const HyperConnectionWeights& w);
// h += inject (x) y
void WriteHyperConnection(PassContext& pass);

// y = mixer(u).
void RunGdn(PassContext& pass, uint32_t layer, const GdnWeights& w);
void RunQsa(PassContext& pass, uint32_t layer, const QsaWeights& w);
// Brings the delta-rule states of a window pass to its first `row_count` rows.
void CommitGdn(PassContext& pass, CpuSequence& sequence, uint32_t row_count);

// h += hashed n-gram embedding. Errors come from reading the table.
absl::Status AddNgram(PassContext& pass, const NgramWeights& w);

// Routes of all rows from u. DataLoss when a score is not a number.
absl::Status RunRouter(PassContext& pass, const MoeWeights& w);
// The experts that the layer with these weights would choose from h as it is: (rows, ranks).
// Leaves everything else of the pass as it was.
absl::StatusOr<std::span<const uint32_t>> RunRouterAhead(PassContext& pass,
                                                         const HyperConnectionWeights& hc,
                                                         const MoeWeights& w);
// y = experts combined in rank order, plus the shared expert.
void CombineExperts(PassContext& pass, const MoeWeights& w, std::span<const float> expert_output);

// cos and sin of `position` for every rotary frequency: theta^(-2i / rotary_dim).
void RotaryTable(double theta, uint32_t rotary_dim, uint32_t position, std::span<float> cos,
                 std::span<float> sin);
void FillRotaryTables(PassContext& pass);

}  // namespace hearth
