#include "runtime/serve/telemetry/time_histogram.h"

#include <algorithm>

namespace hearth {
namespace {

constexpr double kSecondsPerNs = 1e-9;

}  // namespace

void TimeHistogram::Add(int64_t ns, uint64_t times) {
  const int64_t value = std::max<int64_t>(ns, 0);
  const auto bucket = std::ranges::lower_bound(kBoundsNs, value) - kBoundsNs.begin();
  counts[static_cast<size_t>(bucket)] += times;
  sum_ns += value * static_cast<int64_t>(times);
}

uint64_t TimeHistogram::count() const {
  uint64_t count = 0;
  for (const uint64_t n : counts) count += n;
  return count;
}

std::optional<double> TimeHistogram::Mean() const {
  const uint64_t n = count();
  if (n == 0) return std::nullopt;
  return static_cast<double>(sum_ns) * kSecondsPerNs / static_cast<double>(n);
}

std::optional<double> TimeHistogram::Quantile(double q) const {
  const uint64_t n = count();
  if (n == 0) return std::nullopt;
  const double wanted = std::clamp(q, 0.0, 1.0) * static_cast<double>(n);
  double below = 0;
  for (size_t b = 0; b < kBoundsNs.size(); ++b) {
    const auto here = static_cast<double>(counts[b]);
    if (counts[b] != 0 && below + here >= wanted) {
      const double from = b == 0 ? 0 : static_cast<double>(kBoundsNs[b - 1]);
      const double part = (wanted - below) / here;
      return (from + part * (static_cast<double>(kBoundsNs[b]) - from)) * kSecondsPerNs;
    }
    below += here;
  }
  return static_cast<double>(kBoundsNs.back()) * kSecondsPerNs;
}

TimeHistogram TimeHistogram::Since(const TimeHistogram& before) const {
  TimeHistogram since = *this;
  for (size_t b = 0; b < kBucketCount; ++b) since.counts[b] -= before.counts[b];
  since.sum_ns -= before.sum_ns;
  return since;
}

}  // namespace hearth
