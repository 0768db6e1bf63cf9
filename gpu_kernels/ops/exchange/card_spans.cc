// The card's lane of a window's trace, and the choice among clock samples; the kernel that takes
// those is in card_clock.cu.
#include <algorithm>
#include <array>
#include <string_view>

#include "gpu_kernels/ops/exchange/card_clock.h"

namespace hearth {
namespace {

// What the card has done when it leaves a stamp.
struct StampSpan {
  ExchangeStamp to;
  std::string_view name;
};
constexpr std::array<StampSpan, 7> kSpans = {{{ExchangeStamp::kPublishBegin, "dense"},
                                              {ExchangeStamp::kHitsBegin, "publish"},
                                              {ExchangeStamp::kHitsEnd, "wait for hits"},
                                              {ExchangeStamp::kLateBegin, "experts"},
                                              {ExchangeStamp::kLateEnd, "wait for late"},
                                              {ExchangeStamp::kOutputsBegin, "late experts"},
                                              {ExchangeStamp::kOutputsEnd, "wait for outputs"}}};

}  // namespace

void CardClock::Add(const ClockSample& sample) {
  const int64_t half_ns = (sample.host_after_ns - sample.host_before_ns) / 2;
  if (half_ns < 0 || half_ns >= error_ns_) return;
  error_ns_ = half_ns;
  offset_ns_ = sample.host_before_ns + half_ns - static_cast<int64_t>(sample.card_ns);
}

// Stamps are there in this order, but for stages that the window does not have.
GpuListTimes ListTimes(const ExchangeHost& host, uint32_t sequence, LayerId layer,
                       const CardClock* clock) {
  const auto stamps = host.Stamps(sequence, layer);
  const auto at = [&](ExchangeStamp stamp) { return stamps[static_cast<size_t>(stamp)]; };
  const auto between_ns = [](uint64_t begin_ns, uint64_t end_ns) {
    return begin_ns != 0 && end_ns > begin_ns ? static_cast<int64_t>(end_ns - begin_ns) : 0;
  };
  using enum ExchangeStamp;
  const auto begin_ns = [&](uint64_t stamp_ns) {
    return clock == nullptr || stamp_ns == 0 ? 0 : clock->ToHostNs(stamp_ns);
  };
  const bool has_late = at(kLateBegin) != 0;
  return {.hits_ns = between_ns(at(kHitsEnd), at(has_late ? kLateBegin : kOutputsBegin)),
          .late_ns = has_late ? between_ns(at(kLateEnd), at(kOutputsBegin)) : 0,
          .hits_begin_ns = begin_ns(at(kHitsEnd)),
          .late_begin_ns = begin_ns(at(kLateEnd))};
}

void AddCardSpans(const ExchangeHost& host, uint32_t sequence, uint32_t layer_begin,
                  uint32_t layer_end, const CardClock& clock, uint16_t gpu, WindowTrace* trace) {
  uint64_t before_ns = host.Stamp(sequence, WindowStamp::kBegin);  // last stamp so far
  const auto add = [&](std::string_view name, uint64_t stamp_ns, LayerId layer) {
    if (before_ns != 0 && stamp_ns > before_ns) {
      trace->Add({.name = name,
                  .lane = TraceLane::kGpu,
                  .number = gpu,
                  .begin_ns = clock.ToHostNs(before_ns),
                  .end_ns = clock.ToHostNs(stamp_ns),
                  .layer = layer});
    }
    before_ns = std::max(before_ns, stamp_ns);
  };
  for (uint32_t layer = layer_begin; layer < layer_end; ++layer) {
    const auto stamps = host.Stamps(sequence, LayerId(layer));
    bool late_passed = false;
    for (const StampSpan& span : kSpans) {
      const uint64_t stamp_ns = stamps[static_cast<size_t>(span.to)];
      if (stamp_ns == 0) continue;  // a stage that the window does not have
      if (span.to == ExchangeStamp::kLateEnd) late_passed = true;
      const bool is_experts = span.to == ExchangeStamp::kOutputsBegin && !late_passed;
      add(is_experts ? "experts" : span.name, stamp_ns, LayerId(layer));
    }
  }
  add("combine", host.Stamp(sequence, WindowStamp::kEnd), LayerId());
}

}  // namespace hearth
