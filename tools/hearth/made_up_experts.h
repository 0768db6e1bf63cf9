// Experts of any number, made up in memory: the RAM tier of a benchmark that has no pack of that
// size. Every expert has memory of its own, as a real one has; what is in it repeats.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "runtime/base/file.h"
#include "runtime/base/worker_team.h"

namespace hearth::cli {

class MadeUpExperts {
 public:
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;
  // `layouts`: of each layer. ResourceExhausted when the memory cannot be had.
  static absl::StatusOr<std::unique_ptr<MadeUpExperts>> Create(std::vector<ExpertLayout> layouts,
                                                               uint32_t expert_count,
                                                               WorkerTeam& team,
                                                               const Progress& progress);
  // A RAM tier that hands them out; they outlive it.
  std::unique_ptr<ExpertStore> MakeStore() const;

  uint64_t bytes() const { return arena_.data().size(); }
  std::span<const std::byte> Blob(ExpertKey key) const;
  std::span<const ExpertLayout> layouts() const { return layouts_; }
  uint32_t expert_count() const { return expert_count_; }
  std::span<const std::byte> memory() const { return arena_.data(); }

 private:
  MadeUpExperts(std::vector<ExpertLayout> layouts, uint32_t expert_count)
      : layouts_(std::move(layouts)), expert_count_(expert_count) {}
  uint64_t OffsetOf(ExpertKey key) const;

  std::vector<ExpertLayout> layouts_;
  std::vector<uint64_t> layer_offsets_bytes_;
  uint32_t expert_count_;
  AnonymousMapping arena_{*AnonymousMapping::Create(0)};
};

}  // namespace hearth::cli
