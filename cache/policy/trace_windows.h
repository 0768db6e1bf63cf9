// A trace cut into windows: what a policy would have been shown, layer by layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/policy/route_trace.h"
#include "cache/policy/traffic.h"

namespace hearth {

struct TraceWindows {
  uint32_t layer_count = 0;
  uint32_t expert_count = 0;
  std::vector<uint32_t> token_counts;     // of each window, at least 1
  std::vector<uint64_t> begins;           // (windows x layers + 1), into sightings
  std::vector<ExpertSighting> sightings;  // of a window's layer: distinct, by ascending id

  uint64_t window_count() const { return token_counts.size(); }
  std::span<const ExpertSighting> of(uint64_t window, uint32_t layer) const {
    const uint64_t at = window * layer_count + layer;
    return std::span(sightings).subspan(begins[at], begins[at + 1] - begins[at]);
  }
  LayerTraffic traffic(uint64_t window, uint32_t layer) const {
    return {.layer = LayerId(layer), .experts = of(window, layer)};
  }
};

// Windows of `rows` consecutive tokens of one text; a text's last one may be shorter. Of the first
// `tokens_max` tokens.
TraceWindows CutWindows(const RouteTrace& trace, uint32_t rows, uint64_t tokens_max = UINT64_MAX);

}  // namespace hearth
