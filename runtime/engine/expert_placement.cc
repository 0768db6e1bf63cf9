#include "runtime/engine/expert_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/budget_store.h"
#include "cache/store/mapped_store.h"
#include "cache/store/remote_store.h"
#include "cache/store/whole_arena.h"
#include "gpu_kernels/device/gpu_memory.h"
#include "gpu_kernels/ops/link_copy.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/experts/cuda_card.h"
#include "runtime/experts/cuda_slots.h"
#include "runtime/experts/host_slots.h"
#include "runtime/experts/vram_slots.h"

namespace hearth {
namespace {

// Reference arithmetic keeps so many bytes of experts in fp32.
constexpr uint64_t kDecodedBytesMax = 256_MiB;

// Uploads of one layer, and promotions on their way in the background.
constexpr uint32_t kUploadsMax = 8;

bool IsSome(const SlotBudget& budget) {
  return budget.bytes != 0 || budget.slot_count != 0 || budget.share != 0;
}
bool HasSlots(const ExpertOptions& options, bool has_card) {
  return options.slots ? IsSome(*options.slots) : has_card;
}

std::vector<ExpertLayout> LayoutsOf(const ExpertFile& file) {
  std::vector<ExpertLayout> layouts;
  for (uint32_t l = 0; l < file.layer_count(); ++l) layouts.push_back(file.layout(LayerId(l)));
  return layouts;
}

SlotCacheOptions SlotOptions(const ExpertFile& file, const ExpertOptions& options) {
  SlotCacheOptions slots{.expert_count = file.expert_count(),
                         .budget = options.slots.value_or(SlotBudget{}),
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
  if (!HasSlots(options, /*has_card=*/false)) return 0;
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
  if (options.make_store) {
    HEARTH_ASSIGN_OR_RETURN(store_, options.make_store());
    return absl::OkStatus();
  }
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

absl::Status ExpertPlacement::ConnectDaemon(const Deps& deps, const ExpertOptions& options) {
  RemoteStoreOptions remote;
  remote.socket_path = options.daemon_socket;
  HEARTH_ASSIGN_OR_RETURN(
      store_, RemoteStore::Connect(deps.pack.manifest, deps.pack.experts, remote, deps.clock));
  return absl::OkStatus();
}

absl::Status ExpertPlacement::MakeSlots(const Deps& deps, const ExpertOptions& options,
                                        const PassLimits& limits, const Progress& progress) {
  if (!HasSlots(options, deps.card != nullptr)) return absl::OkStatus();
  if (deps.card != nullptr) return MakeCardSlots(deps, options, limits, progress);
  HEARTH_ASSIGN_OR_RETURN(slots_, SlotCache::Create(SlotOptions(deps.pack.experts, options)));
  HEARTH_ASSIGN_OR_RETURN(device_, HostSlots::Create(slots_->pools(), {}));
  return absl::OkStatus();
}

absl::Status ExpertPlacement::MakeCardSlots(const Deps& deps, const ExpertOptions& options,
                                            const PassLimits& limits, const Progress& progress) {
  const GpuInfo& gpu = deps.card->gpu;
  pinned_ = PinnedRanges::Create(store_->memory(), PinnedRanges::kPieceBytes,
                                 PinnedRanges::PinFor(gpu.id), [&](uint64_t done, uint64_t total) {
                                   if (progress) progress("pinning memory", done, total);
                                 });
  const std::vector<ExpertLayout> layouts = LayoutsOf(deps.pack.experts);
  const CudaCardOptions card{.rows_max = RowsMax(limits),
                             .ranks = deps.pack.manifest.geometry.moe.experts_per_token,
                             .expert_count = deps.pack.experts.expert_count(),
                             .arrivals_max = kUploadsMax,
                             .takes_late = !store_->keeps_in_place() && options.pcie_share != 0};
  HEARTH_ASSIGN_OR_RETURN(const uint64_t buffer_bytes,
                          CudaCard::BufferBytes(layouts, gpu.limits, card));
  HEARTH_ASSIGN_OR_RETURN(const GpuMemory memory, ReadGpuMemory(gpu.id));
  const uint64_t others_bytes = buffer_bytes + deps.card->later_bytes;
  const VramRoom room{
      .free_bytes = memory.free_bytes > others_bytes ? memory.free_bytes - others_bytes : 0,
      .reserve_bytes = options.vram_reserve_bytes};
  CudaSlots* cuda_slots = nullptr;  // what OpenVramSlots() keeps in the end
  HEARTH_ASSIGN_OR_RETURN(
      VramSlots opened,
      OpenVramSlots(
          SlotOptions(deps.pack.experts, options), room,
          [&](std::span<const SlotPoolShape> pools) -> absl::StatusOr<std::unique_ptr<SlotDevice>> {
            HEARTH_ASSIGN_OR_RETURN(
                std::unique_ptr<CudaSlots> made,
                CudaSlots::Create({.gpu = gpu, .pinned = pinned_, .clock = deps.clock}, pools, {}));
            cuda_slots = made.get();
            return made;
          }));
  slots_ = std::move(opened.cache);
  device_ = std::move(opened.device);
  slot_notes_ = std::move(opened.notes);
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<CudaCard> cuda_card,
                          CudaCard::Create({.layouts = layouts,
                                            .slots = *cuda_slots,
                                            .gpu = gpu,
                                            .io = deps.card->io,
                                            .clock = deps.clock},
                                           card));
  gpu_recorder_ = cuda_card.get();
  card_ = std::move(cuda_card);
  // Of recorded windows nothing is measured on the way; without pinned memory nothing is known.
  const uint64_t blob_bytes = layouts[0].stride_bytes();
  const absl::StatusOr<double> rate = MeasureUploadRate(gpu.id, pinned_.first_piece(), blob_bytes);
  if (rate.ok() && *rate > 0) upload_expert_ns_ = static_cast<double>(blob_bytes) / *rate * 1e9;
  return absl::OkStatus();
}

absl::Status ExpertPlacement::SeedSlots(const ExpertOptions& options) {
  if (options.ram == RamTier::kDaemon && slots_ != nullptr) {
    // The daemon knows what is hot: the slots start from its heat.
    auto& daemon = static_cast<RemoteStore&>(*store_);
    std::vector<float> heat(daemon.expert_count());
    for (uint32_t l = 0; l < daemon.layer_count(); ++l) {
      HEARTH_RETURN_IF_ERROR(daemon.Heat(LayerId(l), heat));
      slots_->Seed(LayerId(l), heat);
    }
  }
  for (uint32_t l = 0; l < options.seeds.size(); ++l) {
    if (slots_ != nullptr) slots_->Seed(LayerId(l), options.seeds[l]);
    if (options.ram == RamTier::kDaemon) store_->Seed(LayerId(l), options.seeds[l]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExpertPlacement>> ExpertPlacement::Load(const Deps& deps,
                                                                       const ExpertOptions& options,
                                                                       const PassLimits& limits,
                                                                       const Progress& progress) {
  std::unique_ptr<ExpertPlacement> p(new ExpertPlacement());
  const MoeGeometry& moe = deps.pack.manifest.geometry.moe;
  HEARTH_RETURN_IF_ERROR(p->LoadStore(deps, options, progress));
  HEARTH_RETURN_IF_ERROR(p->MakeSlots(deps, options, limits, progress));
  HEARTH_RETURN_IF_ERROR(p->SeedSlots(options));
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
                        .device = p->device_.get(),
                        .card = p->card_.get()},
      ExpertTiersOptions{.rows_max = RowsMax(limits),
                         .ranks = moe.experts_per_token,
                         .pcie_share = options.pcie_share,
                         .pcie_window_bytes_max = options.pcie_window_bytes_max,
                         .promotions_max = kUploadsMax,
                         .costs = {.pcie_expert_ns = p->upload_expert_ns_}});
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
  const auto append = [&notes](const std::vector<std::string>& more) {
    notes.insert(notes.end(), more.begin(), more.end());
  };
  append(slots_->notes());
  append(slot_notes_);
  append(device_->notes());
  append(pinned_.notes());
  return notes;
}

}  // namespace hearth
