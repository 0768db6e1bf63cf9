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
                                                  uint32_t width, XtBits xt_bits) {
  if (hidden == 0 || width == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("expert of hidden ", hidden, ", width ", width, ": both must be positive"));
  }
  if (format == ExpertFormat::kNvfp4 &&
      (hidden % kNvfp4BlockValues != 0 || width % kNvfp4BlockValues != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("NVFP4 expert of hidden ", hidden, ", width ",
                                                   width, ": both must be multiples of 16"));
  }
  if (format == ExpertFormat::kXt) {
    if (hidden % kXtBlockCols != 0 || width % kXtBlockCols != 0) {
      return absl::InvalidArgumentError(absl::StrCat("XT expert of hidden ", hidden, ", width ",
                                                     width, ": both must be multiples of 32"));
    }
    for (const Projection p : kProjections) {
      if (xt_bits.of(p) < 2 || xt_bits.of(p) > 4) {
        return absl::InvalidArgumentError(
            absl::StrCat("XT expert of ", xt_bits.of(p), " bits: 2, 3 or 4 is what XT has"));
      }
    }
  } else if (xt_bits != XtBits{}) {
    return absl::InvalidArgumentError(
        absl::StrCat(ExpertFormatName(format), " expert with XT bits: they must be zero"));
  }
  return ExpertLayout{.format = format, .hidden = hidden, .width = width, .xt_bits = xt_bits};
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
    case ExpertFormat::kXt:
      break;
  }
  HEARTH_CHECK(false);
}

uint64_t ExpertLayout::projection_bytes(Projection p) const {
  if (format == ExpertFormat::kXt) return xt_shape(p).bytes();
  return BandCount(rows(p)) * band_bytes(p);
}

uint64_t ExpertLayout::projection_offset_bytes(Projection p) const {
  if (p == Projection::kGate) return 0;
  const uint64_t gate_bytes = projection_bytes(Projection::kGate);
  return p == Projection::kUp ? gate_bytes : gate_bytes + projection_bytes(Projection::kUp);
}

uint64_t ExpertLayout::trailer_offset_bytes() const {
  return projection_offset_bytes(Projection::kDown) + projection_bytes(Projection::kDown);
}

uint64_t ExpertLayout::scale_offset_bytes(Projection p) const {
  const auto index = static_cast<uint32_t>(p);
  if (format == ExpertFormat::kNvfp4 || format == ExpertFormat::kXt) {
    return trailer_offset_bytes() + index * 4;
  }
  HEARTH_CHECK(format == ExpertFormat::kFp8);
  return trailer_offset_bytes() + index * Fp8ScaleCount(*this, Projection::kGate) * 4;
}

uint64_t ExpertLayout::blob_bytes() const {
  switch (format) {
    case ExpertFormat::kNvfp4:
    case ExpertFormat::kXt:
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
    case ExpertFormat::kXt:
      return "xt";
  }
  return "unknown";
}

std::string ExpertLayoutName(const ExpertLayout& layout) {
  const XtBits bits = layout.xt_bits;
  if (layout.format != ExpertFormat::kXt) return ExpertFormatName(layout.format);
  if (bits == XtBits::All(bits.gate)) return absl::StrCat("xt", bits.gate);
  return absl::StrCat("xt", bits.gate, "-", bits.up, "-", bits.down);
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
