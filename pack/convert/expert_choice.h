// What --experts says: the format that the trunk's experts get.
//   source            as they are
//   nvfp4, bf16
//   xt2, xt3, xt4     XT at that many bits per weight (pack/format/xt_layout.h)
//   xt4-3-3           the same, gate, up and down each at its own
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pack/format/expert_layout.h"

namespace hearth {

enum class ExpertChoice { kSource, kNvfp4, kBf16, kXt };

struct ExpertTarget {
  ExpertChoice choice = ExpertChoice::kSource;
  XtBits xt_bits;  // kXt only
  bool operator==(const ExpertTarget&) const = default;
};

// InvalidArgument names what is accepted.
absl::StatusOr<ExpertTarget> ParseExpertTarget(std::string_view text);

// The layout of a layer whose experts come in `source`. kBf16 narrows NVFP4 sources only: BF16
// cannot hold FP8 times its scales or F32. InvalidArgument when the shape does not fit the format.
absl::StatusOr<ExpertLayout> LayoutFor(const ExpertTarget& target, ExpertFormat source,
                                       uint32_t hidden, uint32_t width);

}  // namespace hearth
