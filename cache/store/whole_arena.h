// A RAM tier that holds every expert of a pack, read and checked once at load.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "pack/reader/pack.h"
#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"

namespace hearth {

class WholeArena final : public ExpertStore {
 public:
  // Called from the loading thread only, with bytes read so far and in all.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Reads all blobs with every worker of `team`. DataLoss names the first damaged expert.
  // `file` need only live during the call.
  static absl::StatusOr<std::unique_ptr<WholeArena>> Load(const ExpertFile& file, WorkerTeam& team,
                                                          const Progress& progress);
  ~WholeArena() override;

  uint32_t layer_count() const override { return static_cast<uint32_t>(layouts_.size()); }
  uint32_t expert_count() const override { return expert_count_; }
  const ExpertLayout& layout(LayerId layer) const override { return layouts_[layer.value]; }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override;
  uint64_t bytes() const { return arena_.data().size(); }

 private:
  WholeArena(AnonymousMapping arena, std::vector<ExpertLayout> layouts,
             std::vector<uint64_t> layer_offsets, uint32_t expert_count);
  void Release(uint64_t ticket) override;
  std::span<std::byte> Blob(ExpertKey key) const;

  AnonymousMapping arena_;
  std::vector<ExpertLayout> layouts_;
  std::vector<uint64_t> layer_offsets_;
  uint32_t expert_count_;
  std::atomic<int64_t> leases_{0};
};

}  // namespace hearth
