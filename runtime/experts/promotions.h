// Experts on their way into VRAM in the background: copied from RAM while the passes go on,
// resident from the moment their copy has landed. Also what every landing has in common: the
// victim's bytes are offered to the RAM tier before its slot is reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/slots/slot_cache.h"
#include "cache/store/expert_store.h"
#include "runtime/base/clock.h"
#include "runtime/base/window_trace.h"
#include "runtime/experts/slot_device.h"

namespace hearth {

// Used by the thread that owns the SlotCache.
class Promotions final : public UploadSink {
 public:
  struct Deps {  // all outlive this
    SlotCache& slots;
    SlotDevice& device;
    ExpertStore& store;
    Clock& clock;
  };
  // At most `count_max` on their way at a time; a device that answers none for `wait_ns` is broken.
  Promotions(const Deps& deps, uint32_t count_max, int64_t wait_ns);
  ~Promotions() override;  // waits for copies under way

  // Whether another may start before one of those on their way is settled.
  bool has_room() const;
  // Begins to copy swap.in, whose bytes `source` holds in place. False, and nothing has happened,
  // when no slot is free or enough are on their way already.
  bool Start(const Swap& swap, ExpertLease source);
  // Makes resident what has been copied.
  void Settle();
  // The same, after waiting for all copies under way. DeadlineExceeded names the slot of one that
  // the device has not answered in time; it stays under way.
  absl::Status Drain();
  // Where copies are told from now on, when they are settled; null: nowhere, after those that are
  // under way have been told as far as they have come.
  void set_trace(WindowTrace* trace);
  // `slot` holds the bytes of swap.in: makes it resident.
  void Land(SlotRef slot, const Swap& swap);

 private:
  enum State : uint32_t { kIdle, kCopying, kCopied, kFailed };
  struct Item {
    std::atomic<uint32_t> state{kIdle};
    Swap swap;
    SlotRef slot;
    ExpertLease source;
    uint64_t bytes = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;  // set by whoever answers, before the state
  };
  static bool IsIdle(const Item& item);
  void Trace(const Item& item, int64_t end_ns);
  void OnUploaded(uint32_t index, const absl::Status& status) override;

  Deps deps_;
  const int64_t wait_ns_;
  std::vector<Item> items_;
  WindowTrace* trace_ = nullptr;
};

}  // namespace hearth
