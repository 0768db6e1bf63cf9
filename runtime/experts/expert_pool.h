// Carries a window plan out on the CPU: every distinct expert over the rows that chose it, in one
// fork-join per layer (ExpertFlow says who does what when). Allocates nothing after creation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/file.h"
#include "runtime/base/scratch_arena.h"
#include "runtime/base/worker_team.h"
#include "runtime/experts/expert_flow.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

// The activations of a pass, as the backend publishes them.
struct ExpertRows {
  const float* x = nullptr;  // (rows, hidden)
  QuantizedRows quantized;   // q == nullptr asks for reference arithmetic: fp32 throughout
  uint32_t rows = 0;
};

struct ExpertPoolStats {
  uint64_t expert_count = 0;  // distinct experts computed, summed over layers and windows
  uint64_t entry_count = 0;   // route entries served
  uint64_t weight_bytes = 0;  // blob bytes read
};

class ExpertPool {
 public:
  struct Deps {  // all outlive the pool
    ExpertStore& store;
    const CpuKernels& kernels;
    WorkerTeam& team;
  };
  struct Options {
    uint32_t rows_max = 0;  // of one pass
    uint32_t ranks = 0;
    // Reference arithmetic decodes NVFP4 and XT experts to fp32 and keeps as many as fit.
    uint64_t decoded_bytes_max = uint64_t{256} << 20;
  };
  static absl::StatusOr<std::unique_ptr<ExpertPool>> Create(const Deps& deps,
                                                            const Options& options);

  // output (rows, ranks, hidden): every entry of the plan is written, unweighted.
  absl::Status Run(LayerId layer, const WindowPlan& plan, const ExpertRows& input,
                   std::span<float> output);

  // Of the last Run(): silu(gate) * up of every entry, (entries, width) in the order of the plan.
  std::span<const float> hidden_rows() const { return h_; }
  const ExpertPoolStats& stats() const { return stats_; }

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
    ExpertLayout layout;
    const WindowPlan& plan;
    const ExpertRows& input;
    std::span<float> output;
    RowForm form = RowForm::kFloat;
  };

  ExpertPool(const Deps& deps, const Options& options) : deps_(deps), options_(options) {}
  absl::Status Allocate();
  void ReserveXt(uint64_t entries);
  absl::Status AcquireAll(LayerId layer, const WindowPlan& plan, bool decode);
  absl::StatusOr<const std::byte*> DecodedBlob(ExpertKey key);
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

  Deps deps_;
  Options options_;
  uint32_t hidden_ = 0;
  uint32_t width_ = 0;
  ExpertPoolStats stats_;

  ScratchArena scratch_;
  QuantizedSpans gathered_q_;    // rows of every entry, by expert
  std::span<float> gathered_x_;  // (entries, hidden)
  std::span<float> h_;           // (entries, width)
  QuantizedSpans hidden_q_;      // h_ as down reads it
  std::span<float> y_;           // (workers, rows_max, hidden)
  // The same in rotated form, where a layer is XT; empty otherwise.
  XtSpans input_xt_;  // rows of the pass
  XtSpans gathered_xt_;
  XtSpans hidden_xt_;
  std::span<float> rotation_;  // (workers, hidden or width)
  std::vector<Job> jobs_;
  std::vector<FlowJob> flow_jobs_;  // one for each of jobs_
  std::vector<ExpertLease> leases_;
  std::unique_ptr<ExpertFlow> flow_;

  // fp32 copies of decoded experts, by layer and expert; null: not decoded.
  std::vector<const std::byte*> decoded_of_;
  AnonymousMapping decoded_{*AnonymousMapping::Create(0)};
  uint64_t decoded_used_bytes_ = 0;
};

}  // namespace hearth
