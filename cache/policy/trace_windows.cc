#include "cache/policy/trace_windows.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {
namespace {

// Adds up the routes of some tokens in one layer.
class SightingCounter {
 public:
  explicit SightingCounter(uint32_t expert_count) : counts_(expert_count) {}

  void Add(std::span<const uint16_t> experts) {
    for (const uint16_t e : experts) {
      if (counts_[e]++ == 0) seen_.push_back(e);
    }
  }
  void MoveTo(std::vector<ExpertSighting>& out) {
    std::ranges::sort(seen_);
    for (const uint16_t e : seen_) {
      out.push_back({.expert = ExpertId(e), .entry_count = counts_[e]});
      counts_[e] = 0;
    }
    seen_.clear();
  }

 private:
  std::vector<uint32_t> counts_;
  std::vector<uint16_t> seen_;
};

}  // namespace

TraceWindows CutWindows(const RouteTrace& trace, uint32_t rows, uint64_t tokens_max) {
  HEARTH_CHECK(rows > 0);
  TraceWindows windows{.layer_count = trace.identity.layer_count,
                       .expert_count = trace.identity.expert_count,
                       .begins = {0}};
  SightingCounter counter(trace.identity.expert_count);
  const uint64_t tokens = std::min(trace.token_count(), tokens_max);
  size_t next_text = 1;
  for (uint64_t begin = 0; begin < tokens;) {
    uint64_t end = std::min(begin + rows, tokens);
    if (next_text < trace.text_begins.size()) {
      end = std::min(end, trace.text_begins[next_text]);
      if (end == trace.text_begins[next_text]) ++next_text;
    }
    for (uint32_t l = 0; l < windows.layer_count; ++l) {
      for (uint64_t t = begin; t < end; ++t) counter.Add(trace.of(t, l));
      counter.MoveTo(windows.sightings);
      windows.begins.push_back(windows.sightings.size());
    }
    windows.token_counts.push_back(static_cast<uint32_t>(end - begin));
    begin = end;
  }
  return windows;
}

}  // namespace hearth
