// Small random traces for the tests of replay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/policy/route_trace.h"
#include "runtime/base/prng.h"

namespace hearth {

struct RandomTraceShape {
  uint32_t layers = 2;
  uint32_t experts = 16;
  uint32_t ranks = 3;
  uint64_t tokens = 60;
  uint64_t text_tokens = 25;
};

// Each token keeps some of the experts of the one before, and low ids are the more frequent.
inline RouteTrace MakeRandomTrace(const RandomTraceShape& shape, uint64_t seed) {
  Prng prng(seed);
  RouteTrace trace;
  trace.identity.layer_count = shape.layers;
  trace.identity.expert_count = shape.experts;
  trace.identity.ranks = shape.ranks;
  std::vector<std::vector<uint16_t>> last(shape.layers);
  for (uint64_t t = 0; t < shape.tokens; ++t) {
    if (t % shape.text_tokens == 0) trace.text_begins.push_back(t);
    for (std::vector<uint16_t>& chosen : last) {
      if (!chosen.empty() && prng.Below(3) != 0) chosen.erase(chosen.begin());
      if (!chosen.empty() && prng.Below(3) == 0) chosen.clear();
      while (chosen.size() < shape.ranks) {
        const double u = prng.Uniform();
        const auto e = static_cast<uint16_t>(u * u * shape.experts);
        if (std::ranges::find(chosen, e) == chosen.end()) chosen.push_back(e);
      }
      trace.routes.insert(trace.routes.end(), chosen.begin(), chosen.end());
    }
  }
  return trace;
}

}  // namespace hearth
