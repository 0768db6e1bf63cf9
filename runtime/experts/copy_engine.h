// What carries bytes into a card's slots and back: a queue of copies that end in order, and a
// second one for what is read back. Two streams of a card, or memory that plays one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/slots/slot_cache.h"

namespace hearth {

// Used by one thread at a time. No call waits for a copy.
class CopyEngine {
 public:
  virtual ~CopyEngine() = default;

  // How many leading bytes of `from` one copy reads in place, beside everything else; 0: they have
  // to go through staging().
  virtual uint64_t ReadsInPlace(std::span<const std::byte> from) const = 0;
  // Memory that copies read in place, cut into equal pieces; empty when nothing is ever staged.
  virtual std::span<std::byte> staging() const = 0;
  virtual uint64_t staging_piece_bytes() const = 0;

  // Begins a copy to `offset_bytes` of the slot, behind those begun before.
  virtual absl::Status Copy(SlotRef slot, uint64_t offset_bytes,
                            std::span<const std::byte> from) = 0;
  // A point behind all copies begun so far; `mark` is below mark_count() and names it until it is
  // used for another one.
  virtual absl::Status Mark(uint32_t mark) = 0;
  // Begins to copy the front of the slot back, beside the copies into slots, and marks its end.
  virtual absl::Status CopyBack(SlotRef slot, std::span<std::byte> into, uint32_t mark) = 0;
  virtual absl::StatusOr<bool> HasPassed(uint32_t mark) const = 0;
  virtual uint32_t mark_count() const = 0;
};

}  // namespace hearth
