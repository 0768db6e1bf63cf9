// The routed experts of a runner, wherever they are: RAM tier, slots, pool and tiers, made from a
// pack and a few choices, and what they have to tell.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/slots/slot_cache.h"
#include "cache/store/expert_store.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "pack/format/geometry.h"
#include "pack/reader/pack.h"
#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/worker_team.h"
#include "runtime/engine/expert_options.h"
#include "runtime/engine/regret_gauge.h"
#include "runtime/experts/expert_card.h"
#include "runtime/experts/expert_pool.h"
#include "runtime/experts/expert_tiers.h"
#include "runtime/experts/pinned_ranges.h"
#include "runtime/experts/slot_device.h"

namespace hearth {

// What the slots of these options take, spares included; 0 without slots.
absl::StatusOr<uint64_t> SlotBytes(const ExpertFile& file, const ExpertOptions& options);

// What the pool's buffers take.
uint64_t ExpertBufferBytes(const ExpertFile& file, const ModelGeometry& geometry,
                           const PassLimits& limits, uint32_t worker_count, Arithmetic arithmetic);

// The card that holds the slots and computes what is in them: the one of the backend.
struct PlacementCard {
  const GpuInfo& gpu;
  const GpuExpertIo& io;
  uint64_t later_bytes = 0;  // of its memory that slots leave to what is allocated later
};

class ExpertPlacement {
 public:
  using Progress = std::function<void(std::string_view what, uint64_t done, uint64_t total)>;
  struct Deps {  // all outlive the placement
    const Pack& pack;
    const CpuKernels& kernels;
    WorkerTeam& team;
    Clock& clock;
    MemoryLimit memory;  // what the page cache may have, for the mapped tier's advice
    const PlacementCard* card = nullptr;  // null: host memory plays it
  };
  // Loads the RAM tier, pins it for the card, opens the slots and fills them from the seeds.
  static absl::StatusOr<std::unique_ptr<ExpertPlacement>> Load(const Deps& deps,
                                                               const ExpertOptions& options,
                                                               const PassLimits& limits,
                                                               const Progress& progress);
  ~ExpertPlacement();

  ExpertTiers& tiers() { return *tiers_; }
  const ExpertTiers& tiers() const { return *tiers_; }
  const ExpertPool& pool() const { return *pool_; }
  const ExpertStore& store() const { return *store_; }
  const SlotCache* slots() const { return slots_.get(); }      // null: no VRAM
  const RegretGauge* regret() const { return regret_.get(); }  // null: no VRAM
  // Records the card's kernels into windows that are graphs; null: no card computes experts.
  GpuExpertRecorder* gpu_recorder() { return gpu_recorder_; }
  bool reads_on_demand() const { return reads_on_demand_; }
  // What a user should know: fallbacks taken, pools that pin, a host that plays the card.
  std::vector<std::string> Notes() const;

 private:
  ExpertPlacement() = default;
  absl::Status LoadStore(const Deps& deps, const ExpertOptions& options, const Progress& progress);
  absl::Status ConnectDaemon(const Deps& deps, const ExpertOptions& options);
  absl::Status MakeSlots(const Deps& deps, const ExpertOptions& options, const PassLimits& limits,
                         const Progress& progress);
  absl::Status MakeCardSlots(const Deps& deps, const ExpertOptions& options,
                             const PassLimits& limits, const Progress& progress);
  absl::Status SeedSlots(const ExpertOptions& options);

  // Destroyed from the last to the first: who borrows goes before what it borrows.
  std::unique_ptr<ExpertStore> store_;
  PinnedRanges pinned_;  // of the store's memory
  std::unique_ptr<SlotCache> slots_;
  std::unique_ptr<SlotDevice> device_;
  std::unique_ptr<ExpertCard> card_;
  GpuExpertRecorder* gpu_recorder_ = nullptr;  // the card
  double upload_expert_ns_ = 0;                // measured; 0: not known
  std::vector<std::string> slot_notes_;
  std::unique_ptr<ExpertPool> pool_;
  std::unique_ptr<RegretGauge> regret_;
  std::unique_ptr<ExpertTiers> tiers_;
  bool reads_on_demand_ = false;
};

}  // namespace hearth
