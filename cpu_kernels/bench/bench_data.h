// Bytes for the kernel benchmark: random, and valid for the format that reads them. No NaN, no
// infinity and no subnormal number, which some processors compute at another speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pack/format/expert_layout.h"
#include "pack/format/matrix_layout.h"

namespace hearth {

// A format of routed experts that the benchmark covers. Random words become codes by
// (word & keep_bits) | set_bits.
struct BenchedFormat {
  ExpertFormat format;
  uint64_t keep_bits;
  uint64_t set_bits;
  XtBits xt_bits{};  // kXt only

  ExpertLayout Layout(uint32_t hidden, uint32_t width) const {
    return {.format = format, .hidden = hidden, .width = width, .xt_bits = xt_bits};
  }
  std::string Name() const { return ExpertLayoutName(Layout(0, 0)); }
};

inline constexpr uint64_t kAnyBits = ~uint64_t{0};

// To cover another format, add its line.
inline constexpr std::array kBenchedFormats = {
    BenchedFormat{ExpertFormat::kNvfp4, kAnyBits, 0},
    BenchedFormat{ExpertFormat::kXt, kAnyBits, 0, XtBits::All(4)},
    BenchedFormat{ExpertFormat::kXt, kAnyBits, 0, XtBits::All(3)},
    BenchedFormat{ExpertFormat::kXt, kAnyBits, 0, XtBits::All(2)},
    BenchedFormat{ExpertFormat::kFp8, 0xBFBFBFBFBFBFBFBFu, 0},  // below 2: no NaN
    BenchedFormat{ExpertFormat::kBf16, 0x81FF81FF81FF81FFu, 0x3C003C003C003C00u},
    BenchedFormat{ExpertFormat::kF32, 0x81FFFFFF81FFFFFFu, 0x3C0000003C000000u},
};

// Every span is a whole number of fp32 values.
void FillFloats(std::span<std::byte> into);  // in [-0.1, 0.1]
void FillMatrix(MatrixFormat format, uint32_t cols, std::span<std::byte> into);
// One blob, `into` its stride.
void FillExpert(const BenchedFormat& format, const ExpertLayout& layout, std::span<std::byte> into);

}  // namespace hearth
