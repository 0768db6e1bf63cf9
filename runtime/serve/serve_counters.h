// What a service counts, for telemetry: everything adds up since its start, but for what is at hand
// now. Rates are left to the reader, so nothing here is ever undefined.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/engine/generation.h"

namespace hearth {

inline constexpr uint32_t kWindowRowsCountedMax = 16;

// Durations by powers of two: bucket i counts those of [2^i, 2^(i+1)) microseconds, the first those
// below two, the last those above too.
class DurationHistogram {
 public:
  static constexpr uint32_t kBucketCount = 24;  // up to 16 seconds

  void Add(int64_t ns);
  uint64_t count() const { return count_; }
  int64_t sum_ns() const { return sum_ns_; }
  int64_t max_ns() const { return max_ns_; }
  const std::array<uint64_t, kBucketCount>& buckets() const { return buckets_; }
  // An upper bound of the duration that a share of `quantile` in [0, 1] does not exceed: the end of
  // its bucket or the largest, whichever is less. 0 when nothing was added.
  int64_t QuantileNs(double quantile) const;

 private:
  std::array<uint64_t, kBucketCount> buckets_{};
  uint64_t count_ = 0;
  int64_t sum_ns_ = 0;
  int64_t max_ns_ = 0;
};

struct ServeCounters {
  // Requests that ended, by how; with those at hand they add up to `submitted`.
  uint64_t submitted = 0;  // taken in
  uint64_t refused = 0;    // never taken in: wrong, too long, queue full, stopping
  uint64_t stopped = 0;    // by a stop token or a stop string
  uint64_t reached_limit = 0;
  uint64_t cancelled = 0;
  uint64_t timed_out = 0;
  uint64_t failed = 0;
  // At hand now.
  uint32_t queued = 0;
  uint32_t reading = 0;   // their prompts
  uint32_t decoding = 0;
  uint32_t queued_max = 0;  // the most there were
  uint64_t state_bytes = 0;  // of the sequences at hand, as admitted
  uint64_t state_budget_bytes = 0;

  uint64_t prompt_tokens = 0;  // of requests that were begun; reused ones included
  uint64_t reused_tokens = 0;
  uint64_t output_tokens = 0;
  uint64_t prompt_passes = 0;
  uint64_t windows = 0;
  std::array<uint64_t, kWindowRowsCountedMax + 1> windows_by_rows{};
  std::array<uint64_t, kDraftsMax> drafted{};  // by position in the window, of requests that ended
  std::array<uint64_t, kDraftsMax> accepted{};
  int64_t prompt_ns = 0;  // in passes over prompts
  int64_t decode_ns = 0;  // in windows, drafting included
  DurationHistogram overhead;     // of each round with a window: the engine thread outside passes
  DurationHistogram queue_time;   // from Submit to the first pass
  DurationHistogram first_token;  // from Submit
};

}  // namespace hearth
