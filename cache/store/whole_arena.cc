#include "cache/store/whole_arena.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/huge_pages.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Experts per fork-join while loading: often enough to show progress, rarely enough to cost
// nothing.
constexpr uint32_t kLoadStep = 256;

// Below this share of huge pages it pays to have them made.
constexpr uint64_t kHugeSharePercent = 90;

// Calls body(i) for all i below `count` with i % nodes == n on the workers of node n, one at a time
// as they become free; nodes = team.node_count().
template <class Body>
void ForEachOnItsNode(WorkerTeam& team, uint32_t count, Body&& body) {
  const uint32_t nodes = team.node_count();
  std::vector<std::atomic<uint32_t>> next(nodes);
  // As many grains as workers: each is run under its own index, whoever runs it.
  team.ForRanges(team.worker_count(), 1, [&](uint32_t worker, uint32_t, uint32_t) {
    const uint32_t node = team.node_of(worker);
    for (;;) {
      const uint64_t turn = next[node].fetch_add(1, std::memory_order_relaxed);
      const uint64_t i = turn * nodes + node;
      if (i >= count) return;
      body(static_cast<uint32_t>(i));
    }
  });
}

}  // namespace

WholeArena::~WholeArena() { HEARTH_CHECK(leases_.load() == 0); }

std::span<std::byte> WholeArena::Blob(ExpertKey key) const {
  const ExpertLayout& layout = layouts_[key.layer.value];
  const uint64_t at = NodeOf(key) * node_bytes_ + layer_offsets_[key.layer.value] +
                      key.expert.value / node_count_ * layout.stride_bytes();
  return arena_.data().subspan(at, layout.blob_bytes());
}

absl::Status WholeArena::Allocate(const ExpertFile& file) {
  expert_count_ = file.expert_count();
  const uint64_t experts_each = (uint64_t{expert_count_} + node_count_ - 1) / node_count_;
  for (uint32_t l = 0; l < file.layer_count(); ++l) {
    layouts_.push_back(file.layout(LayerId(l)));
    layer_offsets_.push_back(node_bytes_);
    node_bytes_ += experts_each * layouts_.back().stride_bytes();
  }
  if (node_count_ > 1) node_bytes_ = AlignUp(node_bytes_, kHugePageBytes);
  absl::StatusOr<AnonymousMapping> mapping = AnonymousMapping::Create(node_bytes_ * node_count_);
  if (!mapping.ok()) return Annotate(mapping.status(), "arena of all experts");
  arena_ = *std::move(mapping);
  return absl::OkStatus();
}

// Brings every huge page in, from its node's memory; where the system gives small ones instead, has
// them replaced while they are empty, which costs no copying.
void WholeArena::TouchPages(WorkerTeam& team) {
  const std::span<std::byte> all = arena_.data();
  if (all.size() < kHugePageBytes) return;
  const auto pages = static_cast<uint32_t>((node_bytes_ + kHugePageBytes - 1) / kHugePageBytes);
  ForEachOnItsNode(team, pages * node_count_, [&](uint32_t i) {
    const uint64_t at = i % node_count_ * node_bytes_ + i / node_count_ * kHugePageBytes;
    *static_cast<volatile std::byte*>(&all[at]) = std::byte{0};
  });
  huge_bytes_ = HugeBytesOf(all);
  if (huge_bytes_ >= all.size() / 100 * kHugeSharePercent) return;
  if (CollapseToHugePages(all).ok()) huge_bytes_ = HugeBytesOf(all);  // else: small pages serve too
}

absl::StatusOr<std::unique_ptr<WholeArena>> WholeArena::Load(const ExpertFile& file,
                                                             WorkerTeam& team,
                                                             const Progress& progress) {
  std::unique_ptr<WholeArena> arena(new WholeArena(team.node_count()));
  HEARTH_RETURN_IF_ERROR(arena->Allocate(file));
  arena->TouchPages(team);
  const uint64_t total = arena->bytes();
  std::mutex mutex;
  absl::Status first_error;
  uint64_t done_bytes = 0;
  // A step begins at a multiple of the node count: an expert's index in it tells its node.
  for (uint32_t layer = 0; layer < file.layer_count() && first_error.ok(); ++layer) {
    const uint32_t step_max = std::max(kLoadStep / team.node_count(), 1u) * team.node_count();
    for (uint32_t begin = 0; begin < file.expert_count() && first_error.ok(); begin += step_max) {
      const uint32_t step = std::min(step_max, file.expert_count() - begin);
      ForEachOnItsNode(team, step, [&](uint32_t i) {
        const ExpertKey key{LayerId(layer), ExpertId(begin + i)};
        const absl::Status status = file.Read(key, arena->Blob(key));
        const std::lock_guard lock(mutex);
        if (!status.ok() && first_error.ok()) first_error = status;
        done_bytes += arena->layout(key.layer).stride_bytes();
      });
      if (progress) progress(done_bytes, total);
    }
  }
  HEARTH_RETURN_IF_ERROR(first_error);
  if (progress) progress(total, total);
  return arena;
}

absl::StatusOr<ExpertLease> WholeArena::Acquire(ExpertKey key) {
  if (key.layer.value >= layouts_.size() || key.expert.value >= expert_count_) {
    return absl::NotFoundError(
        absl::StrCat("no expert ", key.expert.value, " in layer ", key.layer.value));
  }
  leases_.fetch_add(1, std::memory_order_relaxed);
  return MakeLease(0, Blob(key));
}

void WholeArena::Release(uint64_t) { leases_.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace hearth
