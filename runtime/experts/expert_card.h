// A processor that computes experts out of the slots that it reads, beside the CPU's workers: it is
// told what to do and goes on alone. Nobody waits for its outputs here: they stay on the card,
// where the backend combines them behind them in order. What its work reads stays in place until
// the card has passed the layer, which is known at the latest when the next layer's routes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/slots/slot_cache.h"
#include "gpu_kernels/ops/card_claims.h"
#include "runtime/base/ids.h"
#include "runtime/experts/expert_pool.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

struct CardExpert {
  uint32_t index = 0;  // into the plan's experts
  SlotRef slot;        // holds its blob until the layer is retired
};

// One that the card brings in by itself, for this layer only.
struct StreamedExpert {
  uint32_t index = 0;
  std::span<const std::byte> bytes;  // its blob in host memory, in place until the layer is retired
};

// Of one layer, nanoseconds; 0 where it did nothing.
struct CardTimes {
  int64_t layer_ns = 0;   // from when it began until it had passed
  int64_t stream_ns = 0;  // until the last of the streamed experts had come
  uint32_t streamed_count = 0;
  int64_t stream_begin_ns = 0;  // of the process's Clock; 0: not known
};

// A layer is Claims(), Begin(), at most one Stream(), any number of Arrive(), Finish(), and later
// Retire(); one at a time, from one thread, but for Arrive(). Allocates nothing in any of them.
// After an error of any of them the card may be asked to retire the layer, and to begin another: a
// card that is lost fails each.
//
// In some passes a card follows the routes by itself, ahead of the host: it finds what it computes
// in a table (gpu_kernels/ops/card_claims.h). What is set in that holds from the next pass on.
class ExpertCard {
 public:
  virtual ~ExpertCard() = default;  // nothing of it is under way any more
  virtual std::string_view name() const = 0;
  // Whether it can compute experts of the layer, in the arithmetic that reads these rows.
  virtual bool Computes(LayerId layer, const ExpertRows& rows) const = 0;

  // Whether it does so in the pass at hand.
  virtual bool FollowsRoutes() const { return false; }
  // What it computes of the layer then, whether the host says so or not: for each entry of `expert`
  // (rows, ranks), valid until the next call; empty: it waits to be told. Until it has
  // passed the layer, slots and host memory that the pass's table names stay as they are.
  virtual std::span<const EntryClaim> Claims(LayerId /*layer*/,
                                             std::span<const uint32_t> /*expert*/) {
    return {};
  }
  // Whether it can be told of experts that it has not claimed, in a pass in which it claims.
  virtual bool TakesLate() const { return true; }
  virtual void SetSlot(ExpertKey /*key*/, SlotRef /*slot*/) {}  // not valid: in none
  // Bytes that stay where they are as long as the card lives.
  virtual void SetHostBytes(ExpertKey /*key*/, std::span<const std::byte> /*bytes*/) {}
  virtual void SetStreamRule(const StreamRule& /*rule*/) {}

  // Begins with those whose slots are filled; where it claims, with what it has claimed. The plan
  // and the rows on the host stay valid until Finish(). Marks the entries that it will write, see
  // GpuExpertIo::on_card.
  virtual absl::Status Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& rows,
                             std::span<const CardExpert> experts) = 0;
  // Whether it can bring in these bytes of host memory by itself.
  virtual bool Streams(std::span<const std::byte> bytes) const = 0;
  // Brings in experts that it streams, and computes them. After Begin().
  virtual absl::Status Stream(std::span<const StreamedExpert> experts) = 0;
  // One more expert of the layer, whose slot has just been filled; from any thread, after Begin().
  // An error is told by Finish().
  virtual void Arrive(const CardExpert& expert) = 0;
  // That was all. The first error of what was begun; outputs are on their way when there is none.
  virtual absl::Status Finish() = 0;

  // Returns when the card has passed the layer, with the time that it spent on it.
  // DeadlineExceeded, naming the layer, when it does not get there in a bounded time.
  virtual absl::StatusOr<CardTimes> Retire() = 0;
};

}  // namespace hearth
