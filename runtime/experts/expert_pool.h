// Computes a layer's experts on the CPU: every distinct expert over the rows that chose it, in one
// fork-join (ExpertFlow says who does what when). It is given the weights, at once or while the
// layer runs, and does not ask where they come from. Allocates nothing after creation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "pack/format/expert_layout.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/ids.h"
#include "runtime/base/scratch_arena.h"
#include "runtime/base/window_trace.h"
#include "runtime/base/worker_team.h"
#include "runtime/experts/expert_flow.h"
#include "runtime/plan/ledger.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

class RowsArrival;  // gpu_kernels/ops/gpu_expert_io.h

// The activations of a pass, as the backend publishes them.
struct ExpertRows {
  const float* x = nullptr;  // (rows, hidden)
  QuantizedRows quantized;   // q == nullptr asks for reference arithmetic: fp32 throughout
  uint32_t rows = 0;
  RowsArrival* arrival = nullptr;  // not null: to be asked before anything reads the rows
};

// The weights of one expert of a plan.
struct ExpertWeights {
  const std::byte* blob = nullptr;  // 64-byte aligned; null: they come with Arrive()
  uint32_t node = 0;                // memory node that holds them
  bool elsewhere = false;           // a card computes it: the pool leaves its entries alone
};

// Worker time of one layer, summed over the workers.
struct LayerTimes {
  std::array<int64_t, kServiceCount> service_ns{};  // on experts of each Service
  int64_t wait_ns = 0;  // between pieces: mostly waiting for experts that arrive late
};

// Learns that an expert's weights are not needed any more.
class ExpertDoneSink {
 public:
  virtual ~ExpertDoneSink() = default;
  // `index` into the plan's experts; once for each that was computed, from any worker.
  virtual void OnExpertDone(uint32_t index) = 0;
};

class ExpertPool {
 public:
  struct Deps {                             // all outlive the pool
    std::span<const ExpertLayout> layouts;  // of each layer's experts; copied
    uint32_t expert_count = 0;              // per layer
    const CpuKernels& kernels;
    WorkerTeam& team;
    Clock& clock;
  };
  struct Options {
    uint32_t rows_max = 0;  // of one pass
    uint32_t ranks = 0;
    // Reference arithmetic decodes NVFP4 and XT experts to fp32 and keeps as many as fit.
    uint64_t decoded_bytes_max = uint64_t{256} << 20;
  };
  static absl::StatusOr<std::unique_ptr<ExpertPool>> Create(const Deps& deps,
                                                            const Options& options);

  // What the buffers of such a pool take.
  static uint64_t BufferBytes(std::span<const ExpertLayout> layouts, uint32_t worker_count,
                              const Options& options);

  // Whether the layer is computed from fp32 copies, which Decode() makes: reference arithmetic.
  bool DecodesFirst(LayerId layer, const ExpertRows& input) const;
  // Points weights[i] at an fp32 copy of plan.experts[i], for Begin(). What was decoded before is
  // kept while it fits; of the others `stored(i)` gives the blob, which is needed until `done(i)`.
  absl::Status Decode(LayerId layer, const WindowPlan& plan,
                      absl::FunctionRef<absl::StatusOr<const std::byte*>(size_t)> stored,
                      absl::FunctionRef<void(size_t)> done, std::span<ExpertWeights> weights);

  // Prepares a layer: weights[i] is plan.experts[i]'s (from Decode() where it decodes first), valid
  // until the expert is done. output
  // (rows, ranks, hidden): every entry of the plan is written, unweighted, but for experts that
  // never arrive or are computed elsewhere. After an error there is nothing to finish.
  void Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& input,
             std::span<const ExpertWeights> weights, std::span<float> output, ExpertDoneSink* done);
  // Weights that were null at Begin(), once each, from any thread; null: they will not come.
  void Arrive(uint32_t index, const std::byte* blob);
  // Computes everything, waiting for what has not arrived.
  LayerTimes Finish();

  // Who did what when, from the next layer on; null: nobody asks. Outlives that.
  void set_trace(WindowTrace* trace) { trace_ = trace; }

  // Of the last layer: silu(gate) * up of every entry, (entries, width) in the order of the plan.
  std::span<const float> hidden_rows() const { return buffers_.h; }
  uint64_t bytes() const { return scratch_.bytes(); }  // of buffers
  uint32_t workers() const { return deps_.team.worker_count(); }

 private:
  struct Job {  // one distinct expert of the layer at hand
    const std::byte* blob = nullptr;
    uint32_t first_entry = 0;
    uint32_t rows = 0;
    // Its rows of the pass, either where the backend put them or gathered_ at first_entry.
    QuantizedRows xq;
    XtRows xt;
    const float* x = nullptr;
  };
  struct QuantizedSpans {
    std::span<int8_t> q;
    std::span<float> scale;
    std::span<int32_t> sum16;
  };
  struct XtSpans {
    std::span<int8_t> q;
    std::span<float> scale;
    std::span<int32_t> sum;
    XtRows Slice(uint32_t cols, uint32_t first, uint32_t rows) const {
      return XtRows{.q = q.data(), .scale = scale.data(), .sum = sum.data(), .cols = cols}.Slice(
          first, rows);
    }
  };
  // What the format's dots multiply: fp32 rows, rows quantised in blocks, or XT's rotated rows.
  enum class RowForm : uint8_t { kFloat, kBlocks, kRotated };
  struct Layer {  // what the workers of one Run() read
    LayerId id;
    ExpertLayout layout;
    const WindowPlan* plan = nullptr;
    ExpertRows input;
    std::span<float> output;
    ExpertDoneSink* done = nullptr;
    RowForm form = RowForm::kFloat;
    bool has_work = false;
  };

  struct Buffers {
    QuantizedSpans gathered_q;    // rows of every entry, by expert
    std::span<float> gathered_x;  // (entries, hidden)
    std::span<float> h;           // (entries, width)
    QuantizedSpans hidden_q;      // h as down reads it
    std::span<float> y;           // (workers, rows_max, hidden)
    // The same in rotated form, where a layer is XT; empty otherwise.
    XtSpans input_xt;  // rows of the pass
    XtSpans gathered_xt;
    XtSpans hidden_xt;
    std::span<float> rotation;  // (workers, hidden or width)
  };

  ExpertPool(const Deps& deps, const Options& options)
      : deps_(deps), options_(options), layouts_(deps.layouts.begin(), deps.layouts.end()) {}
  static void Reserve(std::span<const ExpertLayout> layouts, uint32_t worker_count,
                      const Options& options, ScratchArena& arena, Buffers& buffers);
  absl::Status Allocate();
  void MakeJobs(const WindowPlan& plan, std::span<const ExpertWeights> weights);
  const std::byte*& DecodedBlob(ExpertKey key);
  QuantizedRows Slice(const QuantizedSpans& spans, uint32_t cols, uint32_t first, uint32_t rows);

  // The steps of a layer, in order. Placing says where each expert's rows lie and which experts
  // have rows to gather; the others are pieces of work.
  void RotateInput(const ExpertRows& input);
  void PlaceRows(const Layer& layer);
  void GatherRows(const Layer& layer, const Job& job);
  void GateUp(const Layer& layer, const Job& job, const FlowPiece& piece);
  void FinishHidden(const Layer& layer, const Job& job, uint32_t worker);
  void Down(const Layer& layer, const Job& job, const FlowPiece& piece, uint32_t worker);
  void RunPieces(const Layer& layer, uint32_t worker);

  struct alignas(64) WorkerTimes {
    LayerTimes times;
  };

  Deps deps_;
  Options options_;
  std::vector<ExpertLayout> layouts_;
  uint32_t hidden_ = 0;
  uint32_t width_ = 0;
  Layer layer_;  // the one at hand
  WindowTrace* trace_ = nullptr;
  std::vector<WorkerTimes> worker_times_;

  ScratchArena scratch_;
  Buffers buffers_;
  std::vector<Job> jobs_;
  std::vector<FlowJob> flow_jobs_;  // one for each of jobs_
  std::unique_ptr<ExpertFlow> flow_;

  // fp32 copies of decoded experts, by layer and expert; null: not decoded.
  std::vector<const std::byte*> decoded_of_;
  AnonymousMapping decoded_{*AnonymousMapping::Create(0)};
  uint64_t decoded_used_bytes_ = 0;
};

}  // namespace hearth
