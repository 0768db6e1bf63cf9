// What the decorators share that change when and how reads end: each read is held until it is due,
// may be asked of the inner reader in two parts, and may end with another result.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

class HoldingReader : public Reader {
 public:
  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override;
  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override;
  void Wake() override;
  uint32_t in_flight() const override { return in_flight_; }
  const ReaderTraits& traits() const override;

 protected:
  struct Held {
    ReadRequest request;
    int64_t submitted_ns = 0;
    uint64_t number = 0;  // how many were submitted before
    // Set by Plan():
    int64_t due_ns = 0;      // not handed out before
    uint64_t order_key = 0;  // of those that are due, the least goes first
    uint64_t part_bytes =
        0;                // asked of the inner reader first, the rest afterwards; 0: all at once
    absl::Status status;  // an error: the inner reader is not asked at all
  };

  // `in_flight_max` is lowered to the inner reader's; 0: the same. Nothing is handed out before
  // `landed_min` reads (or all that are in flight) have landed.
  HoldingReader(std::unique_ptr<Reader> inner, uint32_t in_flight_max, uint32_t landed_min,
                Clock& clock);

  virtual void Plan(Held& held) = 0;
  virtual void OnLanded(Held&) {}  // a read is whole

 private:
  enum class SlotState { kFree, kReading, kLanded };
  struct Slot {
    SlotState state = SlotState::kFree;
    Held held;
    uint64_t asked_bytes = 0;
  };

  absl::Status Ask(uint32_t slot_index);
  absl::StatusOr<size_t> Gather(int64_t timeout_ns);
  size_t Release(std::span<ReadCompletion> out);
  int64_t NextDueNs() const;

  std::unique_ptr<Reader> inner_;
  Clock& clock_;
  uint32_t landed_min_;
  std::vector<Slot> slots_;
  std::vector<ReadCompletion> gathered_;
  uint64_t submitted_count_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t landed_count_ = 0;
  std::atomic<bool> woken_{false};
  mutable ReaderTraits traits_;  // the inner reader's, with this one's limit
};

}  // namespace hearth
