// The card's global timer on the scale of the host's clock, so that stamps of both can stand in one
// picture, and the card's lane of that picture.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/exchange/exchange_host.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "runtime/base/clock.h"
#include "runtime/base/window_trace.h"

namespace hearth {

// One exchange of time stamps: the card took its own between the two of the host.
struct ClockSample {
  int64_t host_before_ns = 0;
  uint64_t card_ns = 0;
  int64_t host_after_ns = 0;
};

class CardClock {
 public:
  // Keeps the sample if its round trip is the shortest so far.
  void Add(const ClockSample& sample);
  int64_t ToHostNs(uint64_t card_ns) const { return static_cast<int64_t>(card_ns) + offset_ns_; }
  // Of ToHostNs() when it was measured: half of the shortest round trip.
  int64_t error_ns() const { return error_ns_; }

 private:
  int64_t offset_ns_ = 0;  // host = card + offset
  int64_t error_ns_ = INT64_MAX;
};

// Exchanges stamps with a small kernel for less than a millisecond. The clocks drift by some
// microseconds in a second, so this is done shortly before or after what is drawn. Waits for
// `stream`. DeadlineExceeded when the card does not answer within a second.
absl::StatusOr<CardClock> MeasureCardClock(CudaStreamView stream, Clock& clock);

// What the card spent on a layer's lists in a window at most kStampWindows old, once it has passed
// the layer: from when it had a list until the next thing that leaves a stamp. Where the card finds
// the hits itself, what it does before it reads them counts as well: the shared expert.
// `clock`: for when it began; null: that is not asked for.
GpuListTimes ListTimes(const ExchangeHost& host, uint32_t sequence, LayerId layer,
                       const CardClock* clock = nullptr);

// Adds the card's lane of a window that has ended to `trace`: for each layer of
// [layer_begin, layer_end) what lies between its stamps, and before its first back to the last of
// the layer before or to the window's begin; at last up to the window's end, if it has that stamp.
// Layers that the window did not pass are left out, and so is what has no length.
void AddCardSpans(const ExchangeHost& host, uint32_t sequence, uint32_t layer_begin,
                  uint32_t layer_end, const CardClock& clock, uint16_t gpu, WindowTrace* trace);

}  // namespace hearth
