// A model that is ready to run: pack, weights, experts, backend and pool, and the loop over half
// layers that ties them together. One runner serves one pass at a time; its sequences are
// independent.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/reader/pack.h"
#include "runtime/backend/backend.h"
#include "runtime/base/arithmetic.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/window_trace.h"
#include "runtime/base/worker_team.h"
#include "runtime/engine/expert_options.h"
#include "runtime/engine/expert_placement.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/model/weights.h"
#include "runtime/plan/request_ledger.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

struct RunnerOptions {
  std::optional<GpuInfo> gpu;  // where the dense path runs and the slots are; none: the CPU
  KvFormat kv_format = KvFormat::kBf16;  // on a card
  Arithmetic arithmetic = Arithmetic::kFast;
  PassLimits limits;
  bool ngram_in_memory = false;
  ExpertOptions experts;
  MemoryLimit memory{.available_bytes = UINT64_MAX, .source = "no limit"};
  uint32_t planned_context_tokens = 0;  // memory for so many is asked for; 0: the model's own
  uint32_t planned_sequences = 1;       // of so many tokens each
  uint64_t prefix_bytes = 0;            // RAM that states of kept prompts may take
};

// What the dense path of this pack asks of a card, with one sequence of the planned context and
// without slots. InvalidArgument for a model that the card's kernels do not cover.
absl::StatusOr<uint64_t> CardBytesOf(const Pack& pack, const RunnerOptions& options);

// What the experts of a layer were given and what they made of it; of use while the call lasts.
struct ExpertActivity {
  const WindowPlan& plan;
  std::span<const float> x;       // (rows, hidden)
  std::span<const float> hidden;  // (entries, width), in the order of plan.entries
};

// Sees what a pass computes, for traces, profiles and checks. Called on the thread that runs the
// pass.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  virtual void OnRoutes(LayerId layer, const Routes& routes) = 0;
  virtual void OnExperts(LayerId, const ExpertActivity&) {}
  // After the layer: (rows, stream_count * hidden).
  virtual void OnResidual(LayerId layer, std::span<const float> residual) = 0;
};

// Bytes of weights that passes had to read, whatever the caches did: what a floor is made of.
struct PassBytes {
  uint64_t dense = 0;
  uint64_t experts = 0;
  uint64_t passes = 0;
  uint64_t total() const { return dense + experts; }
};

class ModelRunner {
 public:
  using LoadProgress = std::function<void(std::string_view what, uint64_t done, uint64_t total)>;

  // What Load() would take.
  static absl::StatusOr<MemoryPlan> Plan(const Pack& pack, const RunnerOptions& options,
                                         uint32_t worker_count);

  // Loads and checks dense weights, the RAM tier and the slots. ResourceExhausted, before anything
  // is read, when the plan does not fit options.memory or the card. `kernels`, `team` and `clock`
  // outlive the runner; `pack` is kept.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Load(Pack pack, const RunnerOptions& options,
                                                           const CpuKernels& kernels,
                                                           WorkerTeam& team, Clock& clock,
                                                           const LoadProgress& progress);

  const ModelGeometry& geometry() const { return weights_.geometry; }
  const Pack& pack() const { return pack_; }
  const RunnerOptions& options() const { return options_; }
  WorkerTeam& team() const { return team_; }

  absl::StatusOr<std::unique_ptr<Sequence>> CreateSequence(uint32_t context_tokens_max) {
    return backend_->CreateSequence(context_tokens_max);
  }

  // What the state of such a sequence takes, on the card or in RAM. Any thread.
  absl::StatusOr<uint64_t> SequenceBytes(uint32_t context_tokens_max) const;

  // A pass over all trunk layers. Afterwards Head() and Commit() apply to it. `served`, unless
  // empty, is each segment's own account, which the pass is added to.
  absl::Status RunTrunk(std::span<const Segment> segments, Phase phase,
                        std::span<RequestCounts> served = {});
  // A pass of the MTP layer. Afterwards Head() gives draft logits.
  absl::Status RunDraft(Sequence& sequence, std::span<const TokenId> tokens,
                        Backend::DraftSource source);
  std::span<float> logits_buffer() { return backend_->logits_buffer(); }
  absl::Status Head(uint32_t row_begin, uint32_t row_count, std::span<float> logits);
  uint32_t top_logits_max() const { return backend_->top_logits_max(); }
  absl::StatusOr<bool> HeadTop(uint32_t row_begin, uint32_t row_count, uint32_t count,
                               std::span<TopLogit> top);
  // The window is over when all its sequences are committed: heat ages and slots may change hands.
  absl::Status Commit(Sequence& sequence, uint32_t row_count);
  absl::Status CommitDraft(Sequence& sequence) { return backend_->CommitDraft(sequence); }
  Clock& clock() const { return clock_; }
  SequenceImager& imager() { return backend_->imager(); }

  // Null: none. With one, windows stop after every layer, so that it sees the residual.
  void set_observer(PassObserver* observer) {
    observer_ = observer;
    backend_->set_stepwise(observer != nullptr);
  }
  // What happens when in passes from now on, on all sides; null: no more, after what has begun has
  // been told. Between windows; outlives that.
  absl::Status set_trace(WindowTrace* trace);
  // Null: the router.
  void set_route_source(RouteSource* source) {
    route_source_ = source;
    backend_->set_route_source(source);
  }
  PassBytes bytes_read() const;
  uint64_t weight_bytes() const { return weights_.bytes(); }  // dense, in memory
  const ExpertPlacement& experts() const { return *experts_; }
  ExpertPlacement& experts() { return *experts_; }

 private:
  ModelRunner(Pack pack, const RunnerOptions& options, WorkerTeam& team, Clock& clock)
      : pack_(std::move(pack)), options_(options), team_(team), clock_(clock) {}
  absl::Status MakeBackend(const CpuKernels& kernels, const LoadProgress& progress);
  absl::StatusOr<Routes> FirstHalf(LayerId layer);
  absl::Status RunLayer(LayerId layer, TrafficKind kind);
  void EndWindow();

  Pack pack_;
  RunnerOptions options_;
  WorkerTeam& team_;
  Clock& clock_;
  ModelWeights weights_;
  std::unique_ptr<ExpertPlacement> experts_;
  std::unique_ptr<Backend> backend_;
  PassObserver* observer_ = nullptr;
  WindowTrace* trace_ = nullptr;
  RouteSource* route_source_ = nullptr;
  PassBytes bytes_;
  std::vector<RequestRows> request_rows_;  // of the trunk pass at hand
  std::span<RequestCounts> served_;
  size_t uncommitted_count_ = 0;  // sequences of the last trunk pass
  uint32_t kept_rows_ = 0;        // of those that are committed
};

}  // namespace hearth
