// Where the dense path runs. A pass takes the rows of one window (or one prompt chunk) through the
// model in half layers, so that the routed experts of a layer can be served by whoever holds them
// in between:
//
//   BeginTrunk -> for each layer: FirstHalf (mixer, router) -> [experts] -> SecondHalf (combine) ->
//   Head
//
// A window pass is tentative until Commit: rows that are not committed leave no trace in any state.
// One backend serves one pass at a time; sequences are independent of each other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/backend/sequence_image.h"
#include "runtime/base/arithmetic.h"
#include "runtime/base/ids.h"
#include "runtime/base/top_logit.h"
#include "runtime/base/window_trace.h"

namespace hearth {

enum class Phase : uint8_t {
  kPrompt,  // many rows, all of which are kept; the delta rule runs in chunks
  kWindow   // at most PassLimits::window_rows_max rows, kept or dropped by Commit
};

struct PassLimits {
  uint32_t prompt_rows_max = 256;
  uint32_t window_rows_max = 9;
};

// The state of one sequence: KV and indexer keys, delta-rule states, convolution windows, n-gram
// history, and the same for the MTP layer. Made by a backend and only good for it.
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual uint32_t token_count() const = 0;  // committed trunk rows
  virtual uint32_t draft_count() const = 0;  // committed rows of the MTP layer, <= token_count()
  virtual uint32_t context_tokens_max() const = 0;
};

// One sequence's share of a pass. Rows of a pass are numbered across segments in order.
struct Segment {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens;
};

// The router's choice, for every row of the pass: ranks by descending weight.
struct Routes {
  std::span<const uint32_t> expert;  // (rows, ranks)
  std::span<const float> weight;     // (rows, ranks)
  uint32_t rows = 0;
  uint32_t ranks = 0;
};

// What the experts of a layer read: the same rows in fp32 and, in fast arithmetic, quantised.
struct ExpertInput {
  const float* x = nullptr;  // (rows, hidden); in fast arithmetic null where nobody reads it
  QuantizedRows quantized;   // q == nullptr in reference arithmetic
  uint32_t rows = 0;
  RowsArrival* arrival = nullptr;  // not null: who reads the rows asks it first
};

// Recorded routes in place of the router's: what a window costs depends on which experts it asks
// for, and made-up weights do not ask as trained ones do. The weights stay the router's.
class RouteSource {
 public:
  virtual ~RouteSource() = default;
  // (rows, ranks) of a layer of the trunk in the pass at hand, distinct within a row; good until
  // the next call.
  virtual std::span<const uint32_t> RoutesOf(LayerId layer, uint32_t rows, uint32_t ranks) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual absl::StatusOr<std::unique_ptr<Sequence>> CreateSequence(uint32_t context_tokens_max) = 0;

  // Starts a pass over new tokens, after the committed ones of each sequence. ResourceExhausted
  // when a sequence would outgrow its context.
  virtual absl::Status BeginTrunk(std::span<const Segment> segments, Phase phase) = 0;

  // Starts a pass of the MTP layer (its id is the trunk's layer count) for one sequence. Row i
  // pairs the hidden state of position draft position + i with tokens[i], the token at the position
  // after it. From the trunk: positions start at draft_count(), hidden states are those of the last
  // trunk pass and the row before it. Chained: one row, after the last row of the previous draft
  // pass, from its output.
  enum class DraftSource : uint8_t { kTrunk, kChained };
  virtual absl::Status BeginDraft(Sequence& sequence, std::span<const TokenId> tokens,
                                  DraftSource source) = 0;

  // Runs the layer up to its router. The results stay valid until SecondHalf.
  virtual absl::StatusOr<Routes> FirstHalf(LayerId layer) = 0;
  virtual ExpertInput expert_input() const = 0;
  // Between FirstHalf and SecondHalf of the layer before: the experts that the router of `layer`,
  // not the MTP layer, would choose from the residual as it is, (rows, ranks) in any order. A
  // guess, of use to whoever fetches experts; window passes only. Changes nothing of the pass.
  virtual absl::StatusOr<std::span<const uint32_t>> PredictExperts(LayerId layer) = 0;
  // Where a caller that computes experts best writes the outputs of the layer at hand: (rows,
  // ranks, hidden) and maybe more, of the backend's own and free from FirstHalf to SecondHalf.
  // Asked for again in each layer.
  virtual std::span<float> expert_output_buffer() = 0;
  // Null where the dense path is not on a card; otherwise the same struct for the backend's life.
  virtual const GpuExpertIo* gpu_expert_io() const { return nullptr; }
  // Who records experts' kernels into windows that are graphs; outlives the backend's last window.
  // Before the first window. Without one the card computes no experts in windows.
  virtual void set_gpu_experts(GpuExpertRecorder*) {}
  // Null: the router. For cards that follow the routes by themselves: they ask for those of all
  // layers when a window of the trunk begins. Between passes.
  virtual void set_route_source(RouteSource*) {}
  // Whether residual() is asked for after every half layer: windows then stop there, which takes
  // time. Otherwise it is good after a pass only. Off at first.
  virtual void set_stepwise(bool) {}
  // What a card does in window passes from now on; null: no more, after all that has begun has been
  // told. Between passes; the trace outlives that.
  virtual absl::Status set_trace(WindowTrace*) { return absl::OkStatus(); }
  // `expert_output` (rows, ranks, hidden): each expert's output, unweighted; read during the call,
  // unless it is expert_output_buffer(), which stays the backend's until the next FirstHalf or
  // Head returns. Entries that gpu_expert_io() says the card computed are not looked at. Combined
  // in rank order.
  virtual absl::Status SecondHalf(LayerId layer, std::span<const float> expert_output) = 0;

  // Where Head best leaves logits: some rows of vocab values, of the backend's own, each good until
  // a Head that is given it again. Empty: any memory is as good.
  virtual std::span<float> logits_buffer() { return {}; }
  // Logits of rows [row_begin, row_begin + row_count) of this pass: (row_count, vocab). After the
  // last layer of a trunk or draft pass.
  virtual absl::Status Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits) = 0;

  // How many of a row's largest logits HeadTop tells at most; 0: none.
  virtual uint32_t top_logits_max() const { return 0; }
  // As Head, but only the `count` largest logits of each row: (row_count, count), by falling order,
  // equal ones by rising token. False when some row's cannot be told so, as for a logit that is NaN
  // or +inf: what Head gives must be looked at.
  virtual absl::StatusOr<bool> HeadTop(uint32_t /*row_begin*/, uint32_t /*row_count*/,
                                       uint32_t /*count*/, std::span<TopLogit>) {
    return false;
  }

  // Keeps the first `row_count` rows of `sequence` in the last trunk pass and drops the rest.
  // Every sequence of a pass must be committed before it takes part in another.
  virtual absl::Status Commit(Sequence& sequence, uint32_t row_count) = 0;
  // Keeps all rows of the last kTrunk draft pass; chained rows are never kept.
  virtual absl::Status CommitDraft(Sequence& sequence) = 0;

  // The residual after the last completed half layer: (rows, stream_count * hidden). For checks.
  virtual std::span<const float> residual() const = 0;

  virtual uint32_t pass_rows() const = 0;

  // Copies of sequences' states; lives as long as the backend.
  virtual SequenceImager& imager() = 0;
};

}  // namespace hearth
