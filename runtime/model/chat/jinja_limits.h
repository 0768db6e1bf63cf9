// The bounds of the template interpreter, and the budget that one rendering spends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

#include "runtime/base/units.h"

namespace hearth::jinja {

inline constexpr uint64_t kTemplateBytesMax = 1_MiB;
inline constexpr uint64_t kOutputBytesMax = 16_MiB;    // of the rendering, and of any one string
inline constexpr uint64_t kProducedBytesMax = 1_GiB;   // of all strings made on the way
inline constexpr uint64_t kScannedBytesMax = 16_GiB;   // of all texts searched and compared
inline constexpr int64_t kIterationsMax = 1'000'000;   // of all loops, filters and list copies
inline constexpr int64_t kRangeItemsMax = 100'000;     // as the Python sandbox has it
inline constexpr int64_t kValueWeightMax = 4'000'000;  // scalars in one value, shared ones again
inline constexpr size_t kCompoundKeysMax = 1000;       // of one dict: they are searched linearly
inline constexpr int32_t kNestingDepthMax = 100;       // brackets and blocks, values, JSON input
inline constexpr int32_t kExpressionDepthMax = 200;    // of a parsed expression, with its chains
inline constexpr int32_t kEvaluationDepthMax = 1500;   // expressions in progress, over all macros
inline constexpr int32_t kMacroDepthMax = 50;

// What one rendering has spent. Every overflow is ResourceExhausted.
class Budget {
 public:
  // Charges `count` steps of a loop or of a filter over a sequence.
  absl::Status ChargeIterations(int64_t count);
  // Charges the making of one string of `bytes`.
  absl::Status ChargeString(uint64_t bytes);
  // Charges reading through `bytes` of text.
  absl::Status ChargeScan(uint64_t bytes);

 private:
  int64_t iterations_ = 0;
  uint64_t produced_bytes_ = 0;
  uint64_t scanned_bytes_ = 0;
};

}  // namespace hearth::jinja
