#include "cache/store/whole_arena.h"

#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// Experts per fork-join while loading: often enough to show progress, rarely enough to cost
// nothing.
constexpr uint32_t kLoadStep = 256;

}  // namespace

WholeArena::WholeArena(AnonymousMapping arena, std::vector<ExpertLayout> layouts,
                       std::vector<uint64_t> layer_offsets, uint32_t expert_count)
    : arena_(std::move(arena)),
      layouts_(std::move(layouts)),
      layer_offsets_(std::move(layer_offsets)),
      expert_count_(expert_count) {}

WholeArena::~WholeArena() { HEARTH_CHECK(leases_.load() == 0); }

std::span<std::byte> WholeArena::Blob(ExpertKey key) const {
  const ExpertLayout& layout = layouts_[key.layer.value];
  return arena_.data().subspan(
      layer_offsets_[key.layer.value] + key.expert.value * layout.stride_bytes(),
      layout.blob_bytes());
}

absl::StatusOr<std::unique_ptr<WholeArena>> WholeArena::Load(const ExpertFile& file,
                                                             WorkerTeam& team,
                                                             const Progress& progress) {
  std::vector<ExpertLayout> layouts;
  std::vector<uint64_t> offsets;
  uint64_t total = 0;
  for (uint32_t l = 0; l < file.layer_count(); ++l) {
    layouts.push_back(file.layout(LayerId(l)));
    offsets.push_back(total);
    total += file.expert_count() * layouts.back().stride_bytes();
  }
  absl::StatusOr<AnonymousMapping> mapping = AnonymousMapping::Create(total);
  if (!mapping.ok()) return Annotate(mapping.status(), "arena of all experts");
  std::unique_ptr<WholeArena> arena(new WholeArena(*std::move(mapping), std::move(layouts),
                                                   std::move(offsets), file.expert_count()));
  const uint32_t count = file.layer_count() * file.expert_count();
  std::mutex mutex;
  absl::Status first_error;
  uint64_t done_bytes = 0;
  for (uint32_t begin = 0; begin < count && first_error.ok(); begin += kLoadStep) {
    const uint32_t step = std::min(kLoadStep, count - begin);
    team.ForEach(step, [&](uint32_t, uint32_t i) {
      const ExpertKey key{LayerId((begin + i) / file.expert_count()),
                          ExpertId((begin + i) % file.expert_count())};
      const absl::Status status = file.Read(key, arena->Blob(key));
      const std::lock_guard lock(mutex);
      if (!status.ok() && first_error.ok()) first_error = status;
      done_bytes += arena->layout(key.layer).stride_bytes();
    });
    if (progress) progress(done_bytes, total);
  }
  HEARTH_RETURN_IF_ERROR(first_error);
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
