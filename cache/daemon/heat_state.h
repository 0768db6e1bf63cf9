// The heat of all experts as a file, so that a daemon starts where the last one ended.
// PROTOCOL.md, "State file", has the layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

// Which model the heat belongs to. Two packs of one checkpoint share it.
struct HeatModelIdentity {
  std::string source_hash;  // Manifest::source_xxh3_128: 32 hex digits
  uint32_t layer_count = 0;
  uint32_t expert_count = 0;  // per layer
  bool operator==(const HeatModelIdentity&) const = default;
};

// At any time `path` is whole, as ReplaceFile() says. `heat`: (layer_count, expert_count).
absl::Status SaveHeat(const std::string& path, const HeatModelIdentity& identity,
                      const std::vector<float>& heat);

// NotFound when there is no file. DataLoss: cut or damaged; FailedPrecondition: of another version
// or model. Each names the path, what was expected and what was found.
absl::StatusOr<std::vector<float>> LoadHeat(const std::string& path,
                                            const HeatModelIdentity& identity);

}  // namespace hearth
