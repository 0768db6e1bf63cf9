// Carries a window plan out on the CPU: every distinct expert over the rows that chose it, with two
// fork-joins per layer. Allocates nothing after creation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"
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
    // Reference arithmetic decodes NVFP4 experts to fp32 and keeps as many as fit.
    uint64_t decoded_bytes_max = uint64_t{256} << 20;
  };
  static absl::StatusOr<std::unique_ptr<ExpertPool>> Create(const Deps& deps,
                                                            const Options& options);

  // output (rows, ranks, hidden): every entry of the plan is written, unweighted.
  absl::Status Run(LayerId layer, const WindowPlan& plan, const ExpertRows& input,
                   std::span<float> output);

  const ExpertPoolStats& stats() const { return stats_; }

 private:
  struct Job {  // one distinct expert of the layer at hand
    const std::byte* blob = nullptr;
    uint32_t first_entry = 0;
    uint32_t rows = 0;
  };
  struct GatheredRows {  // the activations of every entry, grouped by expert
    std::span<int8_t> q;
    std::span<float> scale;
    std::span<int32_t> sum16;
    std::span<float> x;
  };

  ExpertPool(const Deps& deps, const Options& options) : deps_(deps), options_(options) {}
  absl::Status Allocate();
  absl::Status AcquireAll(LayerId layer, const WindowPlan& plan, bool decode);
  absl::StatusOr<const std::byte*> DecodedBlob(ExpertKey key);
  void Gather(const ExpertLayout& layout, const WindowPlan& plan, const ExpertRows& input);
  void GateUp(const ExpertLayout& layout, uint32_t unit_begin, uint32_t unit_end);
  void Down(const ExpertLayout& layout, const WindowPlan& plan, uint32_t worker,
            uint32_t unit_begin, uint32_t unit_end, std::span<float> output);

  Deps deps_;
  Options options_;
  ExpertPoolStats stats_;
  std::vector<ExpertLease> leases_;
  std::vector<Job> jobs_;
  AnonymousMapping scratch_{*AnonymousMapping::Create(0)};
  GatheredRows gathered_;
  std::span<float> h_;    // (entries, width)
  std::span<float> y_;    // (workers, rows_max, band rows)
  std::span<int8_t> hq_;  // (workers, rows_max, width) and its scales and sums
  std::span<float> hscale_;
  std::span<int32_t> hsum_;
  uint32_t hidden_ = 0;
  uint32_t width_ = 0;

  AnonymousMapping decoded_{*AnonymousMapping::Create(0)};  // reference arithmetic only
  std::vector<const std::byte*> decoded_of_;                // [layer][expert], null: not decoded
  uint64_t decoded_used_bytes_ = 0;
};

}  // namespace hearth
