// How one routed expert lies in a pack, in RAM and in a VRAM slot: one blob, the same bytes
// everywhere.
//
//   blob = gate bands | up bands | down bands | trailer, padded with zeros to `stride_bytes`
//   gate, up: (width, hidden); down: (hidden, width). A band is 16 rows (the last padded with zero
//   rows); lane r of a vector register is row r of the band.
//
// Band of each format, cols = reduction length:
//   kNvfp4  codes  [cols/16][2][16][4] u8: sub-block, line, row, byte. Byte j of line l of row r
//   holds
//                  element k = 8l + j of the sub-block in its low nibble, k = 8l + 4 + j in its
//                  high.
//           scales [cols/16][16] u8: E4M3 block scale of (sub-block, row), sign bit always 0
//           cols % 16 == 0
//   kBf16   [cols][16] bf16: k, row
//   kFp8    [cols][16] u8: k, row: E4M3 codes
//   kF32    [cols][16] fp32: k, row
//   kXt     no bands that stand alone: the whole projection is laid out as pack/format/xt_layout.h
//           says, at its own number of bits per weight
// Trailer, little-endian:
//   kNvfp4, kXt  3 x fp32 (multipliers of the gate, up and down outputs), then zero
//   kFp8    block scales as fp32: gate [ceil(width/128)][ceil(hidden/128)], up the same, down
//           [ceil(hidden/128)][ceil(width/128)]
//   others  nothing
// Every part starts on 64 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "pack/format/matrix_layout.h"
#include "pack/format/xt_layout.h"

namespace hearth {

// Values are on disk: append only.
enum class ExpertFormat : uint32_t { kNvfp4 = 1, kBf16 = 2, kFp8 = 3, kF32 = 4, kXt = 5 };

inline constexpr uint32_t kNvfp4BlockValues = 16;  // values that share one E4M3 scale
inline constexpr uint32_t kFp8BlockValues = 128;   // rows and columns that share one fp32 scale
inline constexpr uint64_t kExpertAlignBytes =
    4096;  // so that O_DIRECT reads one expert with no copy

enum class Projection : uint32_t { kGate = 0, kUp = 1, kDown = 2 };
inline constexpr std::array<Projection, 3> kProjections = {Projection::kGate, Projection::kUp,
                                                           Projection::kDown};

// Bits per weight of each projection of a kXt expert: 2, 3 or 4; zeros for other formats.
struct XtBits {
  uint8_t gate = 0;
  uint8_t up = 0;
  uint8_t down = 0;
  static constexpr XtBits All(uint8_t bits) { return {bits, bits, bits}; }
  uint32_t of(Projection p) const {
    return p == Projection::kGate ? gate : (p == Projection::kUp ? up : down);
  }
  bool operator==(const XtBits&) const = default;
};

// One quantisation class: everything about a blob that does not depend on which expert it is.
struct ExpertLayout {
  ExpertFormat format = ExpertFormat::kNvfp4;
  uint32_t hidden = 0;
  uint32_t width = 0;
  XtBits xt_bits;  // kXt only

  // InvalidArgument when a reduction length does not fit the format, or bits are given where they
  // mean nothing or missing where they are needed.
  static absl::StatusOr<ExpertLayout> Create(ExpertFormat format, uint32_t hidden, uint32_t width,
                                             XtBits xt_bits = {});

  uint32_t rows(Projection p) const { return p == Projection::kDown ? hidden : width; }
  uint32_t cols(Projection p) const { return p == Projection::kDown ? width : hidden; }
  uint64_t band_bytes(Projection p) const;  // not kXt
  XtShape xt_shape(Projection p) const { return {rows(p), cols(p), xt_bits.of(p)}; }
  uint64_t projection_bytes(Projection p) const;
  uint64_t projection_offset_bytes(Projection p) const;  // from the start of the blob
  uint64_t trailer_offset_bytes() const;
  uint64_t scale_offset_bytes(
      Projection p) const;      // kNvfp4, kXt: its multiplier; kFp8: its scale grid
  uint64_t blob_bytes() const;  // with trailer, without padding
  uint64_t stride_bytes() const { return AlignUp(blob_bytes(), kExpertAlignBytes); }

  bool operator==(const ExpertLayout&) const = default;
};

const char* ExpertFormatName(ExpertFormat format);  // "nvfp4", "bf16", "fp8", "f32", "xt"
// The same, with the bits of kXt: "xt3", or "xt4-3-3" for gate, up and down.
std::string ExpertLayoutName(const ExpertLayout& layout);
const char* MatrixFormatName(MatrixFormat format);  // "f32", "bf16", "q8_0"

}  // namespace hearth
