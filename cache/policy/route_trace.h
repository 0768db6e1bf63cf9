// A recorded trace: the experts that every token chose in every layer, in order. What replay reads.
// The format is in TRACE.md beside this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/policy/routing_profile.h"

namespace hearth {

struct RouteTrace {
  RoutingIdentity identity;  // hashes are empty for synthetic and imported traces
  // Tokens of one text lie together; a text begins at each of these tokens, the first at 0.
  std::vector<uint64_t> text_begins;
  std::vector<uint16_t> routes;  // (tokens, layer_count, ranks) of the trunk, best rank first

  uint64_t token_count() const {
    const uint64_t per_token = uint64_t{identity.layer_count} * identity.ranks;
    return per_token == 0 ? 0 : routes.size() / per_token;
  }
  std::span<const uint16_t> of(uint64_t token, uint32_t layer) const {
    return std::span(routes).subspan((token * identity.layer_count + layer) * identity.ranks,
                                     identity.ranks);
  }

  std::vector<std::byte> Serialise() const;
  // DataLoss names `path` and what is wrong; experts beyond the model's are refused.
  static absl::StatusOr<RouteTrace> Parse(std::span<const std::byte> bytes,
                                          const std::string& path);
};

}  // namespace hearth
