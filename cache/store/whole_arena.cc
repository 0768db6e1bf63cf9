#include "cache/store/whole_arena.h"

#include <fcntl.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "cache/store/blob_check.h"
#include "cache/store/blob_reads.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/huge_pages.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

// Landed experts per fork-join while loading: few beside what is in flight meanwhile.
constexpr uint32_t kCheckBatch = 16;
constexpr uint32_t kBlobsInFlightMax = 256;
constexpr uint32_t kBlobRequestsMax = 4;

// Below this share of huge pages it pays to have them made.
constexpr uint64_t kHugeSharePercent = 90;

// Calls body(node, i) for all i below count(node) on the workers of that node, one at a time as
// they become free.
template <class Count, class Body>
void ForEachOnItsNode(WorkerTeam& team, Count&& count, Body&& body) {
  std::vector<std::atomic<uint32_t>> next(team.node_count());
  // As many grains as workers: each is run under its own index, whoever runs it.
  team.ForRanges(team.worker_count(), 1, [&](uint32_t worker, uint32_t, uint32_t) {
    const uint32_t node = team.node_of(worker);
    for (;;) {
      const uint32_t i = next[node].fetch_add(1, std::memory_order_relaxed);
      if (i >= count(node)) return;
      body(node, i);
    }
  });
}

}  // namespace

WholeArena::~WholeArena() { HEARTH_CHECK(leases_.load() == 0); }

std::span<std::byte> WholeArena::Blob(ExpertKey key) const {
  const ExpertLayout& layout = layouts_[key.layer.value];
  const uint64_t at = NodeOf(key) * node_bytes_ + layer_offsets_[key.layer.value] +
                      key.expert.value / node_count_ * layout.stride_bytes();
  return arena_.data().subspan(at, layout.stride_bytes());
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
  ForEachOnItsNode(
      team, [pages](uint32_t) { return pages; },
      [&](uint32_t node, uint32_t i) {
        const uint64_t at = node * node_bytes_ + i * kHugePageBytes;
        *static_cast<volatile std::byte*>(&all[at]) = std::byte{0};
      });
  huge_bytes_ = HugeBytesOf(all);
  if (huge_bytes_ >= all.size() / 100 * kHugeSharePercent) return;
  if (CollapseToHugePages(all).ok()) huge_bytes_ = HugeBytesOf(all);  // else: small pages serve too
}

absl::StatusOr<std::unique_ptr<WholeArena>> WholeArena::Load(const ExpertFile& file,
                                                             WorkerTeam& team,
                                                             const Progress& progress,
                                                             const ArenaLoadOptions& options) {
  if (options.blobs_in_flight < 1 || options.blobs_in_flight > kBlobsInFlightMax ||
      options.blob_requests < 1 || options.blob_requests > kBlobRequestsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.blobs_in_flight, " blobs in flight of ", options.blob_requests,
        " requests each: at most ", kBlobsInFlightMax, " and ", kBlobRequestsMax, " expected"));
  }
  std::unique_ptr<WholeArena> arena(new WholeArena(team.node_count()));
  HEARTH_RETURN_IF_ERROR(arena->Allocate(file));
  arena->TouchPages(team);
  HEARTH_RETURN_IF_ERROR(arena->ReadAll(file, team, progress, options));
  return arena;
}

absl::Status WholeArena::ReadAll(const ExpertFile& file, WorkerTeam& team, const Progress& progress,
                                 const ArenaLoadOptions& options) {
  SteadyClock clock;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader,
                          OpenReader(file.file().path(), {.choice = options.io,
                                                          .in_flight_max = options.blobs_in_flight *
                                                                           options.blob_requests,
                                                          .direct = options.direct,
                                                          .clock = clock}));
  BlobReads reads(*reader, clock,
                  {.requests_per_blob = options.blob_requests,
                   .blobs_in_flight_max = options.blobs_in_flight,
                   .timeout_ns = options.read_timeout_ns});
  const auto key_of = [this](uint32_t i) {
    return ExpertKey{LayerId(i / expert_count_), ExpertId(i % expert_count_)};
  };
  const uint32_t count = layer_count() * expert_count_;
  std::vector<std::vector<ExpertKey>> landed(node_count_);
  uint32_t landed_count = 0;
  for (uint32_t next = 0; stats_.resident_count < count;) {
    for (; next < count && reads.has_room(); ++next) {
      reads.Add(BlockId(next), file.offset_bytes(key_of(next)), Blob(key_of(next)));
    }
    reads.Submit();
    if (landed_count < kCheckBatch && reads.ended().empty() && reads.blob_count() > 0) {
      HEARTH_RETURN_IF_ERROR(reads.Wait(options.read_timeout_ns));
    }
    for (const BlobReads::GivenUp& late : reads.GiveUpLate()) {
      return ExpertError(file, key_of(late.block.value), late.status);
    }
    for (const BlobReads::Ended& ended : reads.ended()) {
      const ExpertKey key = key_of(ended.block.value);
      if (!ended.status.ok()) return ExpertError(file, key, ended.status);
      landed[NodeOf(key)].push_back(key);
      ++landed_count;
      ++stats_.read_count;
      stats_.read_bytes += layout(key.layer).stride_bytes();
    }
    reads.ClearEnded();
    if (landed_count < kCheckBatch && reads.blob_count() > 0) continue;
    HEARTH_RETURN_IF_ERROR(Check(file, team, landed));
    for (std::vector<ExpertKey>& keys : landed) keys.clear();
    stats_.resident_count += std::exchange(landed_count, 0);
    if (progress) progress(stats_.read_bytes, bytes());
  }
  stats_.capacity_bytes = bytes();
  stats_.read_busy_ns = reads.busy_ns();
  notes_ = reader->traits().notes;
  // Read through the page cache after all: it is not needed a second time.
  if (!reader->traits().direct) ::posix_fadvise(file.file().fd(), 0, 0, POSIX_FADV_DONTNEED);
  if (progress) progress(bytes(), bytes());
  return absl::OkStatus();
}

absl::Status WholeArena::Check(const ExpertFile& file, WorkerTeam& team,
                               std::span<const std::vector<ExpertKey>> landed) const {
  std::mutex mutex;
  absl::Status first_error;
  ForEachOnItsNode(
      team, [&](uint32_t node) { return landed[node].size(); },
      [&](uint32_t node, uint32_t i) {
        const ExpertKey key = landed[node][i];
        const absl::Status status = CheckBlob(file, key, Blob(key));
        if (status.ok()) return;
        const std::lock_guard lock(mutex);
        if (first_error.ok()) first_error = ExpertError(file, key, status);
      });
  return first_error;
}

absl::StatusOr<ExpertLease> WholeArena::Acquire(ExpertKey key) {
  if (key.layer.value >= layouts_.size() || key.expert.value >= expert_count_) {
    return absl::NotFoundError(
        absl::StrCat("no expert ", key.expert.value, " in layer ", key.layer.value));
  }
  leases_.fetch_add(1, std::memory_order_relaxed);
  return MakeLease(0, Blob(key).first(layout(key.layer).blob_bytes()));
}

void WholeArena::Release(uint64_t) { leases_.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace hearth
