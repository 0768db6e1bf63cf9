// The memory behind a SlotCache and the copies into and out of it: a card, or host memory that
// plays one with the same slots, the same budget and the same order of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/slots/slot_cache.h"

namespace hearth {

class UploadSink {
 public:
  virtual ~UploadSink() = default;
  // Once for each Upload() with that index, from any thread, possibly before Upload() returns. A
  // copy that does not end is an error after a bounded time.
  virtual void OnUploaded(uint32_t index, const absl::Status& status) = 0;
};

// Uploads may be started from one thread at a time.
class SlotDevice {
 public:
  virtual ~SlotDevice() = default;  // waits for copies under way
  virtual std::string_view name() const = 0;
  // Whether experts in slots are computed by a processor of its own (ExpertCard), beside the CPU's
  // workers, who may then be unable to read them.
  virtual bool computes() const = 0;
  // Starts to copy `from`, which stays valid until the sink has heard of it, to the front of the
  // slot. Copies end in the order in which they began.
  virtual void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
                      uint32_t index) = 0;
  // The first bytes of the slot as they are now, good until the next Read(). Waits for them, for a
  // bounded time.
  virtual absl::StatusOr<std::span<const std::byte>> Read(SlotRef slot, uint64_t bytes) = 0;
  // The slot's bytes as the CPU reads them; empty when it cannot.
  virtual std::span<const std::byte> HostView(SlotRef slot) const = 0;
  virtual uint64_t bytes() const = 0;  // of all slots
  // One line for each fallback or warning, with the remedy; may grow over time.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace hearth
