#include "pack/format/expert_layout.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint64_t kPartAlignBytes = 64;

uint64_t Fp8ScaleCount(const ExpertLayout& layout, Projection p) {
  const auto blocks = [](uint32_t n) { return (n + kFp8BlockValues - 1) / kFp8BlockValues; };
  return uint64_t{blocks(layout.rows(p))} * blocks(layout.cols(p));
}

}  // namespace

absl::StatusOr<ExpertLayout> ExpertLayout::Create(ExpertFormat format, uint32_t hidden,
                                                  uint32_t width) {
  if (hidden == 0 || width == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("expert of hidden ", hidden, ", width ", width, ": both must be positive"));
  }
  if (format == ExpertFormat::kNvfp4 &&
      (hidden % kNvfp4BlockValues != 0 || width % kNvfp4BlockValues != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("NVFP4 expert of hidden ", hidden, ", width ",
                                                   width, ": both must be multiples of 16"));
  }
  return ExpertLayout{.format = format, .hidden = hidden, .width = width};
}

uint64_t ExpertLayout::band_bytes(Projection p) const {
  const uint64_t values = uint64_t{cols(p)} * kBandRows;
  switch (format) {
    case ExpertFormat::kNvfp4:
      return AlignUp(values / 2 + values / kNvfp4BlockValues, kPartAlignBytes);
    case ExpertFormat::kBf16:
      return AlignUp(values * 2, kPartAlignBytes);
    case ExpertFormat::kFp8:
      return AlignUp(values, kPartAlignBytes);
    case ExpertFormat::kF32:
      return AlignUp(values * 4, kPartAlignBytes);
  }
  HEARTH_CHECK(false);
}

uint64_t ExpertLayout::projection_offset_bytes(Projection p) const {
  const uint64_t gate_bytes = BandCount(width) * band_bytes(Projection::kGate);
  return p == Projection::kGate ? 0 : (p == Projection::kUp ? gate_bytes : 2 * gate_bytes);
}

uint64_t ExpertLayout::trailer_offset_bytes() const {
  return projection_offset_bytes(Projection::kDown) +
         BandCount(hidden) * band_bytes(Projection::kDown);
}

uint64_t ExpertLayout::scale_offset_bytes(Projection p) const {
  const auto index = static_cast<uint32_t>(p);
  if (format == ExpertFormat::kNvfp4) return trailer_offset_bytes() + index * 4;
  HEARTH_CHECK(format == ExpertFormat::kFp8);
  return trailer_offset_bytes() + index * Fp8ScaleCount(*this, Projection::kGate) * 4;
}

uint64_t ExpertLayout::blob_bytes() const {
  switch (format) {
    case ExpertFormat::kNvfp4:
      return trailer_offset_bytes() + 16;
    case ExpertFormat::kFp8:
      return trailer_offset_bytes() + (2 * Fp8ScaleCount(*this, Projection::kGate) +
                                       Fp8ScaleCount(*this, Projection::kDown)) *
                                          4;
    case ExpertFormat::kBf16:
    case ExpertFormat::kF32:
      return trailer_offset_bytes();
  }
  HEARTH_CHECK(false);
}

const char* ExpertFormatName(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::kNvfp4:
      return "nvfp4";
    case ExpertFormat::kBf16:
      return "bf16";
    case ExpertFormat::kFp8:
      return "fp8";
    case ExpertFormat::kF32:
      return "f32";
  }
  return "unknown";
}

const char* MatrixFormatName(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::kF32:
      return "f32";
    case MatrixFormat::kBf16:
      return "bf16";
    case MatrixFormat::kQ8:
      return "q8_0";
  }
  return "unknown";
}

}  // namespace hearth
