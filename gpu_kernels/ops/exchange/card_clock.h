// The card's global timer on the scale of the host's clock, so that stamps of both can stand in one
// picture.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/exchange/exchange_host.h"
#include "runtime/base/clock.h"
#include "runtime/base/window_trace.h"

namespace hearth {

struct CardClock {
  int64_t offset_ns = 0;  // host = card + offset
  int64_t error_ns = 0;   // bound of the offset's error when it was measured: half a round trip
  int64_t ToHostNs(uint64_t card_ns) const { return static_cast<int64_t>(card_ns) + offset_ns; }
};

// One exchange of time stamps: the host wrote before `host_after_ns` and after `host_before_ns`
// what the card saw at `card_ns`.
struct ClockSample {
  int64_t host_before_ns = 0;
  uint64_t card_ns = 0;
  int64_t host_after_ns = 0;
};

// Takes the sample with the shortest round trip, made better by the sample so far.
CardClock BetterClock(const CardClock& so_far, const ClockSample& sample);

// Exchanges stamps with a small kernel for less than a millisecond; the clocks drift by some
// microseconds in a second, so this is done before each trace. Waits for `stream`. DeadlineExceeded
// when the card does not answer within a second.
absl::StatusOr<CardClock> MeasureCardClock(CudaStreamView stream, Clock& clock);

// Adds the card's lane of a window that has ended to `trace`: for each layer of
// [layer_begin, layer_end) what lies between its stamps. Layers that the window did not pass are
// left out.
void AddCardSpans(const ExchangeHost& host, uint32_t sequence, uint32_t layer_begin,
                  uint32_t layer_end, const CardClock& clock, uint16_t gpu, WindowTrace* trace);

}  // namespace hearth
