// The leases of one engine, in memory that it shares with the daemon: a word per lease that says
// which place of the arena must not change. PROTOCOL.md, "Shared memory", has the proof.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"

#include "cache/protocol/resident_directory.h"
#include "runtime/base/ids.h"

namespace hearth {

// Twice the experts of a layer of 512 for what runs and what comes next, and as many again for
// uploads: leases above it are refused. 8 KiB of shared memory, scanned in under a microsecond.
inline constexpr uint32_t kHazardCount = 2048;

// A view of the page, which outlives it. Each word is given out by the engine to one lease at a
// time; it is written by that lease's holder, and by the daemon while a FETCH names it.
class HazardPage {
 public:
  static uint64_t BytesFor(uint32_t count);
  // The daemon's: writes the header into zeroed memory of BytesFor(count).
  static HazardPage Format(std::span<std::byte> memory, uint32_t count);
  // The engine's: FailedPrecondition when the header is not that of such a page.
  static absl::StatusOr<HazardPage> Attach(std::span<std::byte> memory, uint32_t count);
  uint32_t count() const { return count_; }

  // The place of `key`, held by word `index` from now on; nothing when it is not in the arena. The
  // word is zero before, and zero after a failure.
  std::optional<ArenaPlace> TryHold(uint32_t index, ExpertKey key,
                                    const ResidentDirectory& directory);
  void Hold(uint32_t index, ArenaPlace place) {
    Word(index).store(place.page + 1, std::memory_order_seq_cst);
  }
  // What was read under the hold was read before: the daemon may write the place now.
  void Drop(uint32_t index) { Word(index).store(0, std::memory_order_release); }

  // Whether any word holds the page. The daemon asks after it has taken the place out of the
  // directory.
  bool Holds(uint32_t page) const;
  uint32_t held_count() const;
  // The engine's promise that no word will be set any more: the page can be forgotten.
  void Close() { Closed().store(1, std::memory_order_seq_cst); }
  bool closed() const { return Closed().load(std::memory_order_seq_cst) != 0; }

 private:
  HazardPage(std::span<std::byte> memory, uint32_t count) : memory_(memory), count_(count) {}
  std::atomic<uint32_t>& Word(uint32_t index) const;
  std::atomic<uint32_t>& Closed() const;
  std::span<std::byte> memory_;
  uint32_t count_;
};

}  // namespace hearth
