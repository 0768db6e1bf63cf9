#include "pack/quant/csf_scales.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kSlabRows = 16;
constexpr uint32_t kPositionBits = 24;
constexpr uint64_t kPositions = uint64_t{1} << kPositionBits;
constexpr uint8_t kBaseMax = 240;  // so that base + 15 is a byte

}  // namespace

absl::Status CheckCsfShape(uint64_t rows, uint64_t cols, std::string_view tensor) {
  if (rows > 0 && cols > 0 && rows % kSlabRows == 0 && cols % 2 == 0 && rows <= kPositions / cols) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      ToAbsl(tensor), ": CSF scales of (", rows, ", ", cols,
      "): expected rows in multiples of 16, an even number of columns and at most 2^24 "
      "scales"));
}

absl::Status DecodeCsfScales(std::span<const uint8_t> fixed, std::span<const uint32_t> exceptions,
                             uint64_t rows, uint64_t cols, std::string_view tensor,
                             std::span<uint8_t> scales) {
  HEARTH_CHECK(fixed.size() == CsfFixedBytes(rows, cols));
  HEARTH_CHECK(scales.size() == rows * cols);
  const uint64_t slab_bytes = CsfFixedBytes(kSlabRows, cols);
  for (uint64_t row = 0; row < rows; ++row) {
    const std::span<const uint8_t> slab = fixed.subspan(row / kSlabRows * slab_bytes, slab_bytes);
    const uint64_t in_slab = row % kSlabRows;
    const uint8_t base = slab[in_slab];
    if (base > kBaseMax) {
      return absl::DataLossError(absl::StrCat(ToAbsl(tensor), ": CSF base ", base, " of row ", row,
                                              ", the largest is ", kBaseMax));
    }
    const std::span<const uint8_t> offsets = slab.subspan(kSlabRows + in_slab * cols / 2, cols / 2);
    for (uint64_t col = 0; col < cols; ++col) {
      const uint8_t pair = offsets[col / 2];
      const uint32_t offset = (col % 2 == 0) ? (pair & 15u) : (pair >> 4);
      scales[row * cols + col] = static_cast<uint8_t>(base + offset);
    }
  }
  for (size_t i = 0; i < exceptions.size(); ++i) {
    const uint64_t position = exceptions[i] & (kPositions - 1);
    const bool ascends = i == 0 || position > (exceptions[i - 1] & (kPositions - 1));
    if (position >= scales.size() || !ascends) {
      return absl::DataLossError(absl::StrCat(ToAbsl(tensor), ": CSF exception ", i,
                                              " is for position ", position, " of ", scales.size(),
                                              ascends ? "" : ", which does not ascend"));
    }
    scales[position] = static_cast<uint8_t>(exceptions[i] >> kPositionBits);
  }
  return absl::OkStatus();
}

}  // namespace hearth
