// What `hearth replay` replays, and through what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/config/cache_config.h"
#include "runtime/config/field.h"

namespace hearth {

struct ReplayConfig {
  std::string trace;      // path; exactly one of trace and synthetic
  std::string synthetic;  // diffuse or sticky
  uint64_t tokens = 0;    // 0: all of a trace, 24,576 of a synthetic one
  uint32_t layers = 8;    // of a synthetic trace
  std::string policy;     // names with commas; empty: every policy
  std::string slots = "10%,18%,34%,40%";
  std::string window = "1,4";
  bool per_layer = false;
  float warm_up = 0.25f;
  float seed_share = 0;
  std::optional<uint64_t> swaps_per_layer_max;  // not given: each policy's own
  uint32_t layer_slots_min = 0;
  uint64_t expert_bytes = 2'764'816;  // NVFP4 experts of the 48 x 512 model
  uint32_t threads = 0;
  bool csv = false;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("trace", trace, "recorded routes", {.metavar = "FILE"});
    v("synthetic", synthetic, "made-up routes instead", {.metavar = "diffuse|sticky"});
    v("tokens", tokens, "replay the first N tokens, 0 = all (synthetic: 24576)");
    v("layers", layers, "of a synthetic trace", {.minimum = 1, .maximum = 1024});
    v("policy", policy, "policies, empty = every one", {.metavar = "NAME,..."});
    v("slots", slots, "experts kept, or their share", {.metavar = "N|P%,..."});
    v("window", window, "tokens per window, 1 to 8", {.metavar = "N,..."});
    v("per_layer", per_layer, "each layer has slots of its own, instead of one pool");
    v("warm_up", warm_up, "share of the windows not counted", {.minimum = 0, .maximum = 0.95});
    v("seed_share", seed_share, "start from the hottest of the first windows",
      {.minimum = 0, .maximum = 0.95});
    v("swaps_per_layer_max", swaps_per_layer_max, "of a window, 0 = every miss; else the policy's",
      {.metavar = "N"});
    v("layer_slots_min", layer_slots_min, "eviction leaves each layer so many");
    v("expert_bytes", expert_bytes, "what an upload moves");
    v("threads", threads, "workers, 0 = one per core", {.minimum = 0, .maximum = 1024});
    v("csv", csv, "comma-separated values instead of a table");
  }

  absl::Status Validate(const GivenFields& given) const;
};

// "10%,400": InvalidArgument names the entry that is neither a number nor a share.
absl::StatusOr<std::vector<SlotsChoice>> ParseSlotsList(std::string_view text);
// "1,4": whole numbers from 1 to 8.
absl::StatusOr<std::vector<uint32_t>> ParseWindowList(std::string_view text);
// The parts between commas; none of nothing.
std::vector<std::string> SplitCommas(std::string_view text);

}  // namespace hearth
