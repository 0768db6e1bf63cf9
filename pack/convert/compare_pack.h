// Proves a pack against the checkpoint that it came from: expert blobs are taken apart again and
// compared with the source bit for bit; whatever the build had to encode is encoded again and
// compared byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/convert/build_pack.h"
#include "pack/convert/checkpoint.h"
#include "pack/reader/pack.h"

namespace hearth {

struct CompareReport {
  uint64_t experts_equal = 0;      // same format: every bit of the source is in the pack and back
  uint64_t experts_reencoded = 0;  // another format: the build's encoding gives the pack's bytes
  uint64_t experts_near = 0;       // XT: the decoded weights are as near as the rate allows
  uint64_t tensors_exact = 0;      // dense tensors that hold the source exactly
  uint64_t tensors_encoded = 0;    // Q8, or BF16 that rounds: the encoding gives the pack's bytes
  uint64_t ngram_rows_equal = 0;
  std::vector<std::string> differences;  // at most kDifferencesMax of them
  uint64_t difference_count = 0;         // all of them
  bool ok() const { return difference_count == 0; }
};
inline constexpr uint64_t kDifferencesMax = 20;

// An error when the two cannot be compared (another geometry) or read; differences are in the
// report.
absl::StatusOr<CompareReport> ComparePack(const Pack& pack, const Checkpoint& checkpoint,
                                          const BuildProgressFn& progress,
                                          uint32_t worker_count = 0);

}  // namespace hearth
