// What `hearth score` scores, and how.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "runtime/config/cache_config.h"
#include "runtime/config/compute_config.h"
#include "runtime/config/field.h"
#include "runtime/config/window_trace_config.h"

namespace hearth {

struct ScoreConfig {
  std::string pack;
  std::string text;    // path; exactly one of text and tokens
  std::string tokens;  // path of a JSON array of ids
  uint32_t top = 0;
  std::string against;
  uint32_t tokens_max = 0;
  uint32_t window = 0;
  bool stats = false;
  WindowTraceConfig trace;
  CacheConfig cache;
  ComputeConfig compute;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
    v("text", text, "UTF-8 text to score", {.metavar = "FILE"});
    v("tokens", tokens, "JSON array of token ids to score instead", {.metavar = "FILE"});
    v("top", top, "list the N best tokens of every position", {.minimum = 0, .maximum = 1000});
    v("against", against, "pack to compare the predictions with: KL divergence, top-1 agreement",
      {.metavar = "DIR"});
    v("tokens_max", tokens_max, "score the first N tokens, 0 = all",
      {.minimum = 0, .maximum = 1 << 20});
    v("window", window, "rows of a pass, as in decoding; 0 = large parts",
      {.minimum = 0, .maximum = 9});
    v("stats", stats, "print which tier served the experts, and hits as the text goes on");
    trace.Visit(v);
    cache.Visit(v);
    compute.Visit(v);
  }

  absl::Status Validate(const GivenFields& given) const;
};

}  // namespace hearth
