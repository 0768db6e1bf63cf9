#include "cache/store/budget_store.h"

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/block_layout.h"
#include "runtime/base/huge_pages.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Below this share of huge pages it pays to have them made.
constexpr uint64_t kHugeSharePercent = 90;

absl::Status CheckAvailable(const ExpertFile& file, uint64_t memory_bytes) {
  const absl::StatusOr<MemoryLimit> limit = AvailableMemory();
  if (!limit.ok() || memory_bytes <= limit->available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(file.file().path(), ": ", FormatBytes(memory_bytes), " of RAM for experts, but ",
                   limit->source, " leaves ", FormatBytes(limit->available_bytes),
                   "; give a smaller --ram-budget"));
}

// Every page is there before reads land in it; where the system gives small ones, they are replaced
// while they are empty.
void TouchPages(std::span<std::byte> memory) {
  for (uint64_t at = 0; at < memory.size(); at += kHugePageBytes) {
    *static_cast<volatile std::byte*>(&memory[at]) = std::byte{0};
  }
  const uint64_t enough_bytes = memory.size() / 100 * kHugeSharePercent;
  if (memory.size() < kHugePageBytes || HugeBytesOf(memory) >= enough_bytes) return;
  CollapseToHugePages(memory).IgnoreError();  // small pages serve too
}

ReaderOptions ReaderOptionsOf(const BudgetStoreOptions& options, Clock& clock) {
  return {.choice = options.io,
          .in_flight_max = options.blocks.blobs_in_flight_max * options.blocks.blob_requests,
          .direct = options.direct,
          .clock = clock};
}

absl::StatusOr<std::unique_ptr<Reader>> MakeReader(const ExpertFile& file,
                                                   const BudgetStoreOptions& options, Clock& clock,
                                                   std::span<std::byte> memory) {
  if (options.open_reader) return options.open_reader(memory);
  ReaderOptions reader = ReaderOptionsOf(options, clock);
  reader.buffers = memory;
  return OpenReader(file.file().path(), reader);
}

}  // namespace

BudgetStore::~BudgetStore() = default;

absl::StatusOr<std::unique_ptr<BudgetStore>> BudgetStore::Create(const ExpertFile& file,
                                                                 const BudgetStoreOptions& options,
                                                                 Clock& clock,
                                                                 const Progress& progress) {
  HEARTH_ASSIGN_OR_RETURN(const BlockLayout layout, LayOutBlocks(file, options.budget_bytes));
  HEARTH_RETURN_IF_ERROR(CheckAvailable(file, layout.bytes()));
  HEARTH_ASSIGN_OR_RETURN(AnonymousMapping memory, AnonymousMapping::Create(layout.bytes()));
  std::unique_ptr<BudgetStore> store(new BudgetStore(file, std::move(memory)));
  TouchPages(store->memory_.data());
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader,
                          MakeReader(file, options, clock, store->memory_.data()));
  RamBlocksOptions blocks = options.blocks;
  if (!blocks.reopen) {
    blocks.reopen = [path = file.file().path(), reader = ReaderOptionsOf(options, clock)] {
      return OpenReader(path, reader);
    };
  }
  HEARTH_ASSIGN_OR_RETURN(
      store->blocks_,
      RamBlocks::Create(file, store->memory_.data(), std::move(reader), clock, blocks, nullptr));
  if (!options.seeds.empty() && options.seeds.size() != file.layer_count()) {
    return absl::InvalidArgumentError(absl::StrCat("seeds of ", options.seeds.size(),
                                                   " layers, the pack has ", file.layer_count()));
  }
  for (uint32_t l = 0; l < options.seeds.size(); ++l) {
    if (options.seeds[l].size() != file.expert_count()) {
      return absl::InvalidArgumentError(absl::StrCat("seeds of ", options.seeds[l].size(),
                                                     " experts in layer ", l, ", the pack has ",
                                                     file.expert_count()));
    }
    store->blocks_->Seed(LayerId(l), options.seeds[l]);
  }
  HEARTH_RETURN_IF_ERROR(store->blocks_->Fill(progress));
  return store;
}

ExpertLease BudgetStore::LeaseOf(BlockId block) {
  const uint64_t blob_bytes = file_.layout(blocks_->key(block).layer).blob_bytes();
  return MakeLease(block.value, blocks_->bytes(block).first(blob_bytes));
}

absl::StatusOr<ExpertLease> BudgetStore::Acquire(ExpertKey key) {
  if (const BlockId block = blocks_->Lease(key); block.valid()) return LeaseOf(block);
  struct Waiting {
    std::mutex mutex;
    std::condition_variable arrived;
    std::optional<absl::StatusOr<BlockId>> block;
  } waiting;
  blocks_->Fetch(key, [&waiting](absl::StatusOr<BlockId> block) {
    const std::lock_guard lock(waiting.mutex);
    waiting.block = std::move(block);
    waiting.arrived.notify_one();  // with the lock: `waiting` ends once the waiter has it
  });
  std::unique_lock lock(waiting.mutex);
  waiting.arrived.wait(lock, [&] { return waiting.block.has_value(); });  // every read ends
  HEARTH_RETURN_IF_ERROR(waiting.block->status());
  return LeaseOf(**waiting.block);
}

std::optional<ExpertLease> BudgetStore::TryAcquire(ExpertKey key) {
  const BlockId block = blocks_->Lease(key);
  if (!block.valid()) return std::nullopt;
  return LeaseOf(block);
}

BudgetStore::Call* BudgetStore::BeginCall(ArrivalSink& sink, uint32_t count) {
  const std::lock_guard lock(mutex_);
  if (free_calls_.empty()) {
    calls_.push_back(std::make_unique<Call>());
    free_calls_.reserve(calls_.size());
    free_calls_.push_back(calls_.back().get());
  }
  Call* const call = free_calls_.back();
  free_calls_.pop_back();
  *call = {this, &sink, count};
  return call;
}

void BudgetStore::Arrive(Call* call, uint32_t index, absl::StatusOr<BlockId> block) {
  // After the last arrival the sink, and with it the caller, may be gone.
  ArrivalSink& sink = *call->sink;
  {
    const std::lock_guard lock(mutex_);
    if (--call->left_count == 0) free_calls_.push_back(call);
  }
  if (!block.ok()) return sink.OnArrival(index, std::move(block).status());
  sink.OnArrival(index, LeaseOf(*block));
}

void BudgetStore::Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) {
  if (experts.empty()) return;
  Call* const call = BeginCall(sink, static_cast<uint32_t>(experts.size()));
  for (uint32_t i = 0; i < experts.size(); ++i) {
    // Two words: such a function is stored without an allocation.
    blocks_->Fetch({layer, experts[i]}, [call, i](absl::StatusOr<BlockId> block) {
      call->store->Arrive(call, i, std::move(block));
    });
  }
}

void BudgetStore::LookAhead(LayerId layer, std::span<const ExpertId> experts) {
  for (const ExpertId expert : experts) blocks_->LookAhead({layer, expert});
}

}  // namespace hearth
