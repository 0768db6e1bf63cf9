// The memory behind a SlotCache and the copies into and out of it: a card, or host memory that
// plays one with the same slots, the same budget and the same order of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

#include "cache/slots/slot_cache.h"

namespace hearth {

class UploadSink {
 public:
  virtual ~UploadSink() = default;
  // Once for each Upload() with that index, from any thread, possibly before Upload() returns.
  virtual void OnUploaded(uint32_t index, const absl::Status& status) = 0;
};

// Uploads may be started from one thread at a time.
class SlotDevice {
 public:
  virtual ~SlotDevice() = default;  // waits for copies under way
  virtual std::string_view name() const = 0;
  // Whether experts in slots are computed by a processor of its own, beside the CPU's workers.
  virtual bool computes() const = 0;
  // Starts to copy `from`, which stays valid until the sink has heard of it, to the front of the
  // slot. Copies end in the order in which they began.
  virtual void Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
                      uint32_t index) = 0;
  virtual absl::Status Download(SlotRef slot, std::span<std::byte> into) = 0;
  // The slot's bytes as the CPU reads them; empty when it cannot.
  virtual std::span<const std::byte> HostView(SlotRef slot) const = 0;
  virtual uint64_t bytes() const = 0;  // of all slots
};

}  // namespace hearth
