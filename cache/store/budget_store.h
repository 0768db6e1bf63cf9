// The RAM tier of one process with less memory than the experts take (`--ram-budget`): memory of
// its own in huge pages, RamBlocks over it, leases in process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/io/open_reader.h"
#include "cache/store/expert_store.h"
#include "cache/store/ram_blocks.h"
#include "pack/reader/pack.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"

namespace hearth {

// What a BudgetStore takes besides its budget, at most: tables, the ring and stacks of the reader.
inline constexpr uint64_t kBudgetOverheadBytes = uint64_t{32} << 20;

struct BudgetStoreOptions {
  uint64_t budget_bytes = 0;  // of RAM for experts; more than all of them is not used
  RamBlocksOptions blocks;
  IoChoice io = IoChoice::kAuto;
  bool direct = true;  // reads past the page cache, where the file system allows it
  // Sightings of each layer's experts (expert_count()) that say what is read first, from a profile;
  // empty: as they lie in the pack.
  std::vector<std::vector<float>> seeds = {};
  // For tests: another reader of the same file, whose reads land in `memory`.
  std::function<absl::StatusOr<std::unique_ptr<Reader>>(std::span<std::byte> memory)> open_reader;
};

class BudgetStore final : public ExpertStore {
 public:
  // Called from the creating thread only, with bytes read so far and in all.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Fills the memory with the hottest experts. `file` and `clock` outlive the store.
  // ResourceExhausted when the budget holds too little, naming the least that works, or is more
  // than this process may still take, naming who says so. DataLoss names a damaged expert.
  static absl::StatusOr<std::unique_ptr<BudgetStore>> Create(const ExpertFile& file,
                                                             const BudgetStoreOptions& options,
                                                             Clock& clock,
                                                             const Progress& progress);
  ~BudgetStore() override;

  uint32_t layer_count() const override { return file_.layer_count(); }
  uint32_t expert_count() const override { return file_.expert_count(); }
  const ExpertLayout& layout(LayerId layer) const override { return file_.layout(layer); }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override;
  std::optional<ExpertLease> TryAcquire(ExpertKey key) override;
  void Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) override;
  void LookAhead(LayerId layer, std::span<const ExpertId> experts) override;
  void Observe(const LayerTraffic& traffic) override { blocks_->Observe(traffic); }
  void EndWindow(uint32_t token_count) override { blocks_->EndWindow(token_count); }
  void Seed(LayerId layer, std::span<const float> sightings) override {
    blocks_->Seed(layer, sightings);
  }
  bool takes_exchange() const override { return true; }
  void Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte> out_bytes) override {
    blocks_->Exchange(in, out, out_bytes);
  }
  std::vector<StoreMemory> memory() const override {
    return {{.bytes = memory_.data(), .keep_mapped = nullptr}};
  }
  StoreStats stats() const override { return blocks_->stats(); }
  std::vector<std::string> notes() const override { return blocks_->notes(); }

  // Less memory from now on.
  void Lower(uint64_t budget_bytes) { blocks_->Lower(budget_bytes); }
  RamBlocks& blocks() { return *blocks_; }

 private:
  // One Fetch(): where its arrivals go. Taken from a list, so that a window allocates nothing.
  struct Call {
    BudgetStore* store = nullptr;
    ArrivalSink* sink = nullptr;
    uint32_t left_count = 0;
  };

  BudgetStore(const ExpertFile& file, AnonymousMapping memory)
      : file_(file), memory_(std::move(memory)) {}
  ExpertLease LeaseOf(BlockId block);
  Call* BeginCall(ArrivalSink& sink, uint32_t count);
  void Arrive(Call* call, uint32_t index, absl::StatusOr<BlockId> block);
  void Release(uint64_t ticket) override {
    blocks_->Release(BlockId(static_cast<uint32_t>(ticket)));
  }

  const ExpertFile& file_;
  AnonymousMapping memory_;
  std::mutex mutex_;  // guards the calls
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Call*> free_calls_;
  std::unique_ptr<RamBlocks> blocks_;  // last: its arrivals use what is above
};

}  // namespace hearth
