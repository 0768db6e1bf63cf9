// The shapes and expert formats of made-up models, as flags name them.
#pragma once

#include <array>
#include <cstdint>

#include "pack/synth/synthetic_geometry.h"
#include "runtime/config/field.h"

namespace hearth {

constexpr std::array<EnumEntry<SyntheticModel>, 3> EnumEntriesOf(SyntheticModel) {
  return {{{SyntheticModel::kFlashNext, "flash-next"},
           {SyntheticModel::kFlashlet, "flashlet"},
           {SyntheticModel::kSmall, "small"}}};
}

namespace cli {

enum class SynthFormat { kNvfp4, kXt2, kXt3, kXt4, kBf16, kFp8 };

constexpr std::array<EnumEntry<SynthFormat>, 6> EnumEntriesOf(SynthFormat) {
  return {{{SynthFormat::kNvfp4, "nvfp4"},
           {SynthFormat::kXt2, "xt2"},
           {SynthFormat::kXt3, "xt3"},
           {SynthFormat::kXt4, "xt4"},
           {SynthFormat::kBf16, "bf16"},
           {SynthFormat::kFp8, "fp8"}}};
}

inline void SetFormat(SynthFormat format, SyntheticShape& shape) {
  switch (format) {
    case SynthFormat::kNvfp4:
      shape.format = ExpertFormat::kNvfp4;
      return;
    case SynthFormat::kBf16:
      shape.format = ExpertFormat::kBf16;
      return;
    case SynthFormat::kFp8:
      shape.format = ExpertFormat::kFp8;
      return;
    case SynthFormat::kXt2:
    case SynthFormat::kXt3:
    case SynthFormat::kXt4:
      shape.format = ExpertFormat::kXt;
      shape.xt_bits = XtBits::All(format == SynthFormat::kXt2   ? 2
                                  : format == SynthFormat::kXt3 ? 3
                                                                : 4);
      return;
  }
}

}  // namespace cli
}  // namespace hearth
