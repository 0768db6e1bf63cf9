#include "runtime/experts/pinned_ranges.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/pinned_memory.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kPageBytes = RegisteredMemory::kAlignBytes;

uint64_t WholePages(std::span<const std::byte> bytes) {
  return bytes.size() / kPageBytes * kPageBytes;
}

}  // namespace

PinnedRanges::Pin PinnedRanges::PinFor(GpuId gpu) {
  return [gpu](std::span<const std::byte> range, bool writable) -> absl::StatusOr<Pinned> {
    using Access = RegisteredMemory::Access;
    HEARTH_ASSIGN_OR_RETURN(
        RegisteredMemory memory,
        RegisteredMemory::Create(gpu, range, writable ? Access::kReadWrite : Access::kReadOnly));
    const std::byte* const card_address = memory.device_data();
    return Pinned{.registration = std::make_shared<const RegisteredMemory>(std::move(memory)),
                  .card_address = card_address};
  };
}

PinnedRanges PinnedRanges::Create(std::vector<StoreMemory> memory, uint64_t piece_bytes,
                                  const Pin& pin, const Progress& progress) {
  HEARTH_CHECK(piece_bytes > 0 && piece_bytes % kPageBytes == 0);
  PinnedRanges ranges;
  ranges.memory_ = std::move(memory);
  uint64_t total = 0;
  for (const StoreMemory& part : ranges.memory_) total += WholePages(part.bytes);
  for (const StoreMemory& part : ranges.memory_) {
    const std::span<const std::byte> pages = part.bytes.first(WholePages(part.bytes));
    for (uint64_t at = 0; at < pages.size(); at += piece_bytes) {
      const std::span<const std::byte> range =
          pages.subspan(at, std::min<uint64_t>(piece_bytes, pages.size() - at));
      absl::StatusOr<Pinned> pinned = pin(range, part.writable);
      if (!pinned.ok()) {
        ranges.notes_.push_back(
            absl::StrCat("uploads: ", FormatBytes(ranges.pinned_bytes_), " of ", FormatBytes(total),
                         " of experts in RAM are pinned, the others are copied twice: ",
                         pinned.status().message()));
        break;
      }
      ranges.pieces_.push_back({.range = range, .pinned = *std::move(pinned)});
      ranges.pinned_bytes_ += range.size();
      if (progress) progress(ranges.pinned_bytes_, total);
    }
    if (!ranges.notes_.empty()) break;
  }
  std::ranges::sort(ranges.pieces_, std::less<>(), [](const Piece& p) { return p.range.data(); });
  return ranges;
}

const PinnedRanges::Piece* PinnedRanges::PieceOf(const std::byte* address) const {
  const auto after = std::ranges::upper_bound(pieces_, address, std::less<>(),
                                              [](const Piece& p) { return p.range.data(); });
  if (after == pieces_.begin()) return nullptr;
  const Piece& piece = *(after - 1);
  return std::less<>()(address, piece.range.data() + piece.range.size()) ? &piece : nullptr;
}

uint64_t PinnedRanges::PinnedBytes(std::span<const std::byte> bytes) const {
  const Piece* const piece = PieceOf(bytes.data());
  if (piece == nullptr) return 0;
  const auto left = static_cast<uint64_t>(piece->range.data() + piece->range.size() - bytes.data());
  return std::min<uint64_t>(left, bytes.size());
}

bool PinnedRanges::AllPinned(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const uint64_t pinned = PinnedBytes(bytes);
    if (pinned == 0) return false;
    bytes = bytes.subspan(pinned);
  }
  return true;
}

const std::byte* PinnedRanges::CardAddress(std::span<const std::byte> bytes) const {
  const Piece* const piece = PieceOf(bytes.data());
  if (piece == nullptr || PinnedBytes(bytes) < bytes.size()) return nullptr;
  return piece->pinned.card_address + (bytes.data() - piece->range.data());
}

}  // namespace hearth
