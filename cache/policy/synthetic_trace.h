// Made-up routes with the locality of real ones: for policies that must not be tuned to one model.
// In every layer an expert's score is the sum of five parts,
//   base (for ever) + document (until the text ends) + topic (drifts) + token (its identity) +
//   noise
// and a token chooses the experts of the highest scores.
#pragma once

#include <cstdint>

#include "cache/policy/route_trace.h"

namespace hearth {

// Standard deviations of the parts; only their ratios matter.
struct SyntheticRouting {
  float base = 0;
  float document = 0;
  float topic = 0;
  float token = 0;
  float noise = 0;
  float topic_tokens = 1;  // after so many tokens a topic has lost 63% of itself
  uint32_t document_tokens = 1;
  uint32_t vocabulary = 1500;  // identities, drawn as 1 / (rank + 3)
};

// Two fits to published measurements of models with 512 experts and top 10, token by token:
//   diffuse  LRU from cold over the first 300 tokens of a text, with 18 / 36 / 54 / 73 / 100% of
//            the experts: hits .40 / .63 / .76 / .83 / .85 (published: .44 / .62 / .72 / .79 / .85)
//   sticky   LRU with 64 and 128 slots .66 and .76 (.67 and .81), a static list of another text's
//            top 32 .10 (.10)
SyntheticRouting DiffuseRouting();
SyntheticRouting StickyRouting();

struct SyntheticTraceShape {
  uint32_t layer_count = 8;
  uint32_t expert_count = 512;  // at most 65,536
  uint32_t ranks = 10;          // at most expert_count
  uint64_t token_count = 0;
  uint64_t seed = 0;
};

// The same numbers make the same trace.
RouteTrace MakeSyntheticTrace(const SyntheticRouting& routing, const SyntheticTraceShape& shape);

}  // namespace hearth
