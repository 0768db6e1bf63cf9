// A RAM tier that holds every expert of a pack, read and checked once at load: past the page cache
// where that is possible, so that nothing is in memory twice. With several memory nodes, expert e
// of a layer lies on node e % nodes: whole experts, so that a worker of that node reads nothing
// from afar.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/io/open_reader.h"
#include "cache/store/expert_store.h"
#include "pack/reader/pack.h"
#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"

namespace hearth {

struct ArenaLoadOptions {
  IoChoice io = IoChoice::kAuto;
  bool direct = true;                        // past the page cache, where the file system allows it
  uint32_t blob_requests = 2;                // reads that one blob is split into, 1 to 4
  uint32_t blobs_in_flight = 16;             // 1 to 256
  int64_t read_timeout_ns = 30'000'000'000;  // a drive that does not answer is an error
};

class WholeArena final : public ExpertStore {
 public:
  // Called from the loading thread only, with bytes read so far and in all.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Reads all blobs in the order of the file, many at a time, while the workers of `team` check
  // those that have landed, each those of its own memory node: memory comes from where it is
  // touched first. DataLoss names a damaged expert. `file` need only live during the call.
  static absl::StatusOr<std::unique_ptr<WholeArena>> Load(const ExpertFile& file, WorkerTeam& team,
                                                          const Progress& progress,
                                                          const ArenaLoadOptions& options = {});
  ~WholeArena() override;

  uint32_t layer_count() const override { return static_cast<uint32_t>(layouts_.size()); }
  uint32_t expert_count() const override { return expert_count_; }
  const ExpertLayout& layout(LayerId layer) const override { return layouts_[layer.value]; }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override;
  uint32_t NodeOf(ExpertKey key) const override { return key.expert.value % node_count_; }
  bool keeps_in_place() const override { return true; }
  std::vector<StoreMemory> memory() const override {
    return {{.bytes = arena_.data(), .keep_mapped = nullptr}};
  }
  StoreStats stats() const override { return stats_; }
  std::vector<std::string> notes() const override { return notes_; }
  uint64_t bytes() const { return arena_.data().size(); }
  uint64_t huge_bytes() const { return huge_bytes_; }  // of bytes(), in huge pages after loading

 private:
  explicit WholeArena(uint32_t node_count) : node_count_(node_count) {}
  absl::Status Allocate(const ExpertFile& file);
  void TouchPages(WorkerTeam& team);
  absl::Status ReadAll(const ExpertFile& file, WorkerTeam& team, const Progress& progress,
                       const ArenaLoadOptions& options);
  // The landed experts of each node, checked by its workers.
  absl::Status Check(const ExpertFile& file, WorkerTeam& team,
                     std::span<const std::vector<ExpertKey>> landed) const;
  void Release(uint64_t ticket) override;
  std::span<std::byte> Blob(ExpertKey key) const;  // with its padding

  const uint32_t node_count_;
  AnonymousMapping arena_{*AnonymousMapping::Create(0)};
  std::vector<ExpertLayout> layouts_;
  std::vector<uint64_t> layer_offsets_;  // in each node's part
  uint64_t node_bytes_ = 0;              // of the arena; a multiple of a huge page
  uint64_t huge_bytes_ = 0;
  uint32_t expert_count_ = 0;
  StoreStats stats_;
  std::vector<std::string> notes_;
  std::atomic<int64_t> leases_{0};
};

}  // namespace hearth
