// The directory in shared memory: where in the arena each expert lies, one atomic word per expert.
// The daemon alone writes; engines read it without a message. PROTOCOL.md, "Shared memory".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"

namespace hearth {

inline constexpr uint64_t kArenaPageBytes = 4096;  // every block begins on one
inline constexpr size_t kSharedHeaderBytes = 64;
inline constexpr size_t kDestructiveBytes = 64;  // cache line: one writer each

// Where an expert lies. The whole of it is one word, so that it is read and written at once:
// generation in the upper half, page + 1 in the lower; 0 when the expert is not there.
struct ArenaPlace {
  uint32_t page = UINT32_MAX;  // 4 KiB pages from the start of the arena
  uint32_t generation = 0;     // counts publications of this expert, so that no place looks old
  bool valid() const { return page != UINT32_MAX; }
  bool operator==(const ArenaPlace&) const = default;
  uint64_t word() const { return valid() ? uint64_t{generation} << 32 | (uint64_t{page} + 1) : 0; }
  static ArenaPlace FromWord(uint64_t word) {
    const auto low = static_cast<uint32_t>(word);
    return low == 0 ? ArenaPlace() : ArenaPlace{low - 1, static_cast<uint32_t>(word >> 32)};
  }
};

// A view of the directory's memory, which outlives it. Thread-safe: every access is atomic.
class ResidentDirectory {
 public:
  struct Shape {
    uint32_t layer_count = 0;
    uint32_t expert_count = 0;  // per layer
  };
  static uint64_t BytesFor(Shape shape);
  // The daemon's: writes the header into zeroed memory of BytesFor(shape).
  static ResidentDirectory Format(std::span<std::byte> memory, Shape shape);
  // The engine's: FailedPrecondition when the header is not that of such a directory.
  static absl::StatusOr<ResidentDirectory> Attach(std::span<std::byte> memory, Shape shape);

  // Sequentially consistent: orders with the hazard words (see HazardPage::TryHold).
  ArenaPlace Read(ExpertKey key) const {
    return ArenaPlace::FromWord(Word(key).load(std::memory_order_seq_cst));
  }
  // The bytes at `place` were written before: whoever reads the place sees them.
  void Publish(ExpertKey key, ArenaPlace place) {
    Word(key).store(place.word(), std::memory_order_seq_cst);
  }
  void TakeOut(ExpertKey key) { Word(key).store(0, std::memory_order_seq_cst); }

 private:
  ResidentDirectory(std::span<std::byte> memory, Shape shape) : memory_(memory), shape_(shape) {}
  std::atomic<uint64_t>& Word(ExpertKey key) const;
  std::span<std::byte> memory_;
  Shape shape_;
};

}  // namespace hearth
