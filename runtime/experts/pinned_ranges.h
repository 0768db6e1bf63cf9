// The RAM tier's memory, pinned for a card's copies: piece by piece, as much of it as the system
// allows. Copies of the rest go through staging memory, which is slower and costs the CPU a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "gpu_kernels/device/gpu_info.h"

namespace hearth {

class PinnedRanges {
 public:
  // One pinned piece of memory, until it is destroyed, and its address on the card.
  struct Pinned {
    std::shared_ptr<const void> registration;
    const std::byte* card_address = nullptr;
  };
  using Pin = std::function<absl::StatusOr<Pinned>(std::span<const std::byte>, bool writable)>;
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 30;

  PinnedRanges() = default;
  // Pins whole pages of `memory` in pieces of `piece_bytes` (a multiple of 4 KiB). The first piece
  // that is refused ends it, with a note: what was pinned so far stays.
  static PinnedRanges Create(std::vector<StoreMemory> memory, uint64_t piece_bytes, const Pin& pin,
                             const Progress& progress);
  // Pins for copies of `gpu`.
  static Pin PinFor(GpuId gpu);

  // How many leading bytes of `bytes` lie in one pinned piece.
  uint64_t PinnedBytes(std::span<const std::byte> bytes) const;
  // Whether every one of them is pinned, in one piece or in several that follow each other.
  bool AllPinned(std::span<const std::byte> bytes) const;
  // Where a card reads `bytes` itself; null unless all of them lie in one piece.
  const std::byte* CardAddress(std::span<const std::byte> bytes) const;
  uint64_t bytes() const { return pinned_bytes_; }
  // Some memory that is pinned in one piece; empty when none is.
  std::span<const std::byte> first_piece() const {
    return pieces_.empty() ? std::span<const std::byte>() : pieces_.front().range;
  }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Piece {
    std::span<const std::byte> range;
    Pinned pinned;
  };
  const Piece* PieceOf(const std::byte* address) const;

  std::vector<StoreMemory> memory_;  // kept mapped; before the pieces, which go first
  std::vector<Piece> pieces_;        // by address
  uint64_t pinned_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace hearth
