#include "runtime/engine/expert_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/budget_store.h"
#include "cache/store/mapped_store.h"
#include "cache/store/remote_store.h"
#include "cache/store/whole_arena.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/experts/host_slots.h"

namespace hearth {
namespace {

// Reference arithmetic keeps so many bytes of experts in fp32.
constexpr uint64_t kDecodedBytesMax = 256_MiB;

bool HasSlots(const SlotBudget& budget) {
  return budget.bytes != 0 || budget.slot_count != 0 || budget.share != 0;
}

std::vector<ExpertLayout> LayoutsOf(const ExpertFile& file) {
  std::vector<ExpertLayout> layouts;
  for (uint32_t l = 0; l < file.layer_count(); ++l) layouts.push_back(file.layout(LayerId(l)));
  return layouts;
}

SlotCacheOptions SlotOptions(const ExpertFile& file, const ExpertOptions& options) {
  SlotCacheOptions slots{.expert_count = file.expert_count(),
                         .budget = options.slots,
                         .policy = options.policy,
                         .swap_bytes_per_window_max = options.pcie_window_bytes_max};
  for (const ExpertLayout& layout : LayoutsOf(file)) {
    slots.blob_bytes.push_back(layout.stride_bytes());
  }
  return slots;
}

// The pools as the trunk uses them.
std::vector<PoolShape> TrunkPools(const SlotCache& slots, uint32_t trunk_layers,
                                  uint32_t expert_count) {
  std::vector<PoolShape> pools;
  for (const SlotPoolShape& slot_pool : slots.pools()) {
    PoolShape pool{.layer_count = trunk_layers,
                   .expert_count = expert_count,
                   .layers = slot_pool.layers,
                   .slot_count = slot_pool.slot_count};
    std::erase_if(pool.layers, [&](LayerId layer) { return layer.value >= trunk_layers; });
    if (!pool.layers.empty()) pools.push_back(std::move(pool));
  }
  return pools;
}

uint32_t RowsMax(const PassLimits& limits) {
  return std::max(limits.prompt_rows_max, limits.window_rows_max);
}

}  // namespace

absl::StatusOr<uint64_t> SlotBytes(const ExpertFile& file, const ExpertOptions& options) {
  if (!HasSlots(options.slots)) return 0;
  HEARTH_ASSIGN_OR_RETURN(const auto slots, SlotCache::Create(SlotOptions(file, options)));
  return slots->bytes();
}

uint64_t ExpertBufferBytes(const ExpertFile& file, const ModelGeometry& geometry,
                           const PassLimits& limits, uint32_t worker_count, Arithmetic arithmetic) {
  const uint64_t rows_max = RowsMax(limits);
  const uint64_t buffers = ExpertPool::BufferBytes(
      LayoutsOf(file), worker_count,
      {.rows_max = static_cast<uint32_t>(rows_max), .ranks = geometry.moe.experts_per_token});
  return buffers + (arithmetic == Arithmetic::kReference ? kDecodedBytesMax : 0);
}

absl::Status ExpertPlacement::LoadStore(const Deps& deps, const ExpertOptions& options,
                                        const Progress& progress) {
  const auto loading = [&](uint64_t done, uint64_t total) {
    if (progress) progress("loading experts", done, total);
  };
  switch (options.ram) {
    case RamTier::kWhole: {
      HEARTH_ASSIGN_OR_RETURN(
          store_, WholeArena::Load(deps.pack.experts, deps.team, loading, {.io = options.io}));
      return absl::OkStatus();
    }
    case RamTier::kBudget: {
      reads_on_demand_ = true;
      BudgetStoreOptions budget;
      budget.budget_bytes = options.ram_budget_bytes;
      budget.blocks.policy = options.policy;
      budget.io = options.io;
      budget.seeds = options.seeds;
      HEARTH_ASSIGN_OR_RETURN(store_,
                              BudgetStore::Create(deps.pack.experts, budget, deps.clock, loading));
      return absl::OkStatus();
    }
    case RamTier::kDaemon:
      reads_on_demand_ = true;
      return ConnectDaemon(deps, options);
    case RamTier::kMapped: {
      reads_on_demand_ = true;
      HEARTH_ASSIGN_OR_RETURN(
          store_, MappedStore::Create(deps.pack.experts, {.available = deps.memory}, deps.clock));
      return absl::OkStatus();
    }
  }
  HEARTH_CHECK(false);
}

// The daemon knows what is hot: the slots start from its heat.
absl::Status ExpertPlacement::ConnectDaemon(const Deps& deps, const ExpertOptions& options) {
  RemoteStoreOptions remote;
  remote.socket_path = options.daemon_socket;
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<RemoteStore> store,
      RemoteStore::Connect(deps.pack.manifest, deps.pack.experts, remote, deps.clock));
  std::vector<float> heat(store->expert_count());
  for (uint32_t l = 0; l < store->layer_count() && slots_ != nullptr; ++l) {
    HEARTH_RETURN_IF_ERROR(store->Heat(LayerId(l), heat));
    slots_->Seed(LayerId(l), heat);
  }
  store_ = std::move(store);
  return absl::OkStatus();
}

absl::Status ExpertPlacement::MakeSlots(const Deps& deps, const ExpertOptions& options) {
  if (!HasSlots(options.slots)) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(slots_, SlotCache::Create(SlotOptions(deps.pack.experts, options)));
  HEARTH_ASSIGN_OR_RETURN(device_, HostSlots::Create(slots_->pools(), {}));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExpertPlacement>> ExpertPlacement::Load(const Deps& deps,
                                                                       const ExpertOptions& options,
                                                                       const PassLimits& limits,
                                                                       const Progress& progress) {
  std::unique_ptr<ExpertPlacement> p(new ExpertPlacement());
  const MoeGeometry& moe = deps.pack.manifest.geometry.moe;
  HEARTH_RETURN_IF_ERROR(p->MakeSlots(deps, options));
  HEARTH_RETURN_IF_ERROR(p->LoadStore(deps, options, progress));
  for (uint32_t l = 0; l < options.seeds.size(); ++l) {
    if (p->slots_ != nullptr) p->slots_->Seed(LayerId(l), options.seeds[l]);
    if (options.ram == RamTier::kDaemon) p->store_->Seed(LayerId(l), options.seeds[l]);
  }
  const std::vector<ExpertLayout> layouts = LayoutsOf(deps.pack.experts);
  HEARTH_ASSIGN_OR_RETURN(p->pool_, ExpertPool::Create({.layouts = layouts,
                                                        .expert_count = moe.expert_count,
                                                        .kernels = deps.kernels,
                                                        .team = deps.team,
                                                        .clock = deps.clock},
                                                       {.rows_max = RowsMax(limits),
                                                        .ranks = moe.experts_per_token,
                                                        .decoded_bytes_max = kDecodedBytesMax}));
  p->tiers_ = std::make_unique<ExpertTiers>(
      ExpertTiers::Deps{.store = *p->store_,
                        .pool = *p->pool_,
                        .clock = deps.clock,
                        .slots = p->slots_.get(),
                        .device = p->device_.get()},
      ExpertTiersOptions{.rows_max = RowsMax(limits),
                         .ranks = moe.experts_per_token,
                         .pcie_share = options.pcie_share,
                         .pcie_window_bytes_max = options.pcie_window_bytes_max});
  if (p->slots_ != nullptr) {
    const uint32_t trunk_layers = deps.pack.manifest.geometry.layer_count();
    p->regret_ = std::make_unique<RegretGauge>(
        trunk_layers, moe.expert_count, TrunkPools(*p->slots_, trunk_layers, moe.expert_count));
    p->tiers_->set_observer(p->regret_.get());
  }
  HEARTH_RETURN_IF_ERROR(p->tiers_->FillSlots([&](uint64_t done, uint64_t total) {
    if (progress) progress("filling slots", done, total);
  }));
  return p;
}

ExpertPlacement::~ExpertPlacement() = default;

std::vector<std::string> ExpertPlacement::Notes() const {
  std::vector<std::string> notes = store_->notes();
  if (slots_ == nullptr) return notes;
  if (!device_->computes()) {
    notes.push_back(absl::StrCat("slots: ", FormatBytes(device_->bytes()),
                                 " of host memory play the card's part: the "
                                 "ledger is a card's, the speed is not"));
  }
  for (std::string& note : slots_->notes()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace hearth
