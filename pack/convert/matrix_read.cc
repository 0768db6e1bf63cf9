// Reading what matrix_source.h describes: bytes from the shards, through the codecs of pack/quant.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pack/convert/matrix_source.h"
#include "pack/format/expert_layout.h"
#include "pack/format/float_codes.h"
#include "pack/quant/csf_scales.h"
#include "pack/quant/fp8_source.h"
#include "pack/quant/nvfp4_source.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using Location = SafetensorsSet::Location;

// Bounds the buffer of undecoded bytes, whatever range is asked for.
constexpr uint64_t kChunkBytes = 4_MiB;

uint64_t Blocks(uint64_t count) { return (count + kFp8BlockValues - 1) / kFp8BlockValues; }

float DecodeFloat(SourceDtype dtype, const uint8_t* bytes) {
  if (dtype == SourceDtype::kF32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  uint16_t code = 0;
  std::memcpy(&code, bytes, sizeof(code));
  return dtype == SourceDtype::kBf16 ? DecodeBf16(code) : DecodeFp16(code);
}

absl::Status ReadFp8Rows(const MatrixSource& s, uint64_t row_begin, std::span<uint8_t> codes,
                         std::span<float> out) {
  HEARTH_RETURN_IF_ERROR(ReadBytes(s.weight, row_begin * s.cols, codes));
  const std::string label = TensorLabel(s.weight);
  if (s.encoding == MatrixEncoding::kMxfp8) {
    const uint64_t scale_cols = s.cols / kMxfp8BlockValues;
    std::vector<uint8_t> scales(codes.size() / kMxfp8BlockValues);
    HEARTH_RETURN_IF_ERROR(ReadBytes(s.scale, row_begin * scale_cols, scales));
    return DecodeMxfp8(codes, scales, s.cols, row_begin, label, out);
  }
  HEARTH_RETURN_IF_ERROR(CheckFp8Codes(codes, s.cols, row_begin, label));
  if (s.encoding == MatrixEncoding::kFp8Tensor) {
    std::array<float, 1> scale;
    HEARTH_RETURN_IF_ERROR(ReadFloats(s.scale, 0, 1, scale));
    HEARTH_ASSIGN_OR_RETURN(const float checked, CheckMultiplier(scale[0], TensorLabel(s.scale)));
    DecodeFp8(codes, checked, out);
    return absl::OkStatus();
  }
  const uint64_t block_cols = Blocks(s.cols);
  const uint64_t block_begin = row_begin / kFp8BlockValues;
  const uint64_t block_end = Blocks(row_begin + codes.size() / s.cols);
  std::vector<float> scales((block_end - block_begin) * block_cols);
  HEARTH_RETURN_IF_ERROR(ReadFloats(s.scale, block_begin * block_cols, block_cols, scales));
  HEARTH_RETURN_IF_ERROR(CheckScaleGrid(scales, block_cols, TensorLabel(s.scale)));
  for (uint64_t r = 0; r < codes.size() / s.cols; ++r) {
    const uint64_t block = (row_begin + r) / kFp8BlockValues - block_begin;
    DecodeFp8BlockRow(codes.subspan(r * s.cols, s.cols),
                      std::span<const float>(scales).subspan(block * block_cols, block_cols),
                      out.subspan(r * s.cols, s.cols));
  }
  return absl::OkStatus();
}

// E4M3 scales (rows, cols / 16) of rows [row_begin, row_begin + row_count), checked.
absl::Status ReadNvfp4Scales(const MatrixSource& s, uint64_t row_begin, uint64_t row_count,
                             std::vector<uint8_t>& scales) {
  const uint64_t cols = s.cols / kNvfp4BlockValues;
  const std::string label = TensorLabel(s.scale);
  if (!s.has_csf) {
    scales.resize(row_count * cols);
    HEARTH_RETURN_IF_ERROR(ReadBytes(s.scale, row_begin * cols, scales));
    return CheckBlockScales(scales, cols, row_begin, label);
  }
  std::vector<uint8_t> fixed(s.scale.tensor->bytes);
  HEARTH_RETURN_IF_ERROR(ReadBytes(s.scale, 0, fixed));
  std::vector<uint32_t> exceptions(s.exceptions.tensor->value_count());
  HEARTH_RETURN_IF_ERROR(s.exceptions.file->Read(*s.exceptions.tensor, 0,
                                                 std::as_writable_bytes(std::span(exceptions))));
  scales.resize(s.rows * cols);
  HEARTH_RETURN_IF_ERROR(DecodeCsfScales(fixed, exceptions, s.rows, cols, label, scales));
  HEARTH_RETURN_IF_ERROR(CheckBlockScales(scales, cols, 0, label));
  scales.erase(scales.begin(), scales.begin() + static_cast<ptrdiff_t>(row_begin * cols));
  scales.resize(row_count * cols);
  return absl::OkStatus();
}

absl::StatusOr<float> ReadMultiplier(const MatrixSource& s) {
  std::array<float, 1> stored;
  HEARTH_RETURN_IF_ERROR(
      ReadBytes(s.global, 0, std::span(reinterpret_cast<uint8_t*>(stored.data()), sizeof(float))));
  const std::string label = TensorLabel(s.global);
  return s.has_divisor ? MultiplierOfDivisor(stored[0], label) : CheckMultiplier(stored[0], label);
}

absl::Status ReadNvfp4Rows(const MatrixSource& s, uint64_t row_begin, std::span<uint8_t> codes,
                           std::span<float> out) {
  HEARTH_RETURN_IF_ERROR(ReadBytes(s.weight, row_begin * s.cols / 2, codes));
  std::vector<uint8_t> scales;
  HEARTH_RETURN_IF_ERROR(ReadNvfp4Scales(s, row_begin, out.size() / s.cols, scales));
  HEARTH_ASSIGN_OR_RETURN(const float multiplier, ReadMultiplier(s));
  DecodeNvfp4(codes, scales, multiplier, out);
  return absl::OkStatus();
}

absl::Status ReadChunk(const MatrixSource& s, uint64_t row_begin, std::vector<uint8_t>& buffer,
                       std::span<float> out) {
  switch (s.encoding) {
    case MatrixEncoding::kFloat:
      return ReadFloats(s.weight, row_begin * s.cols, s.cols, out);
    case MatrixEncoding::kNvfp4:
      buffer.resize(out.size() / 2);
      return ReadNvfp4Rows(s, row_begin, buffer, out);
    case MatrixEncoding::kFp8Tensor:
    case MatrixEncoding::kFp8Blocks:
    case MatrixEncoding::kMxfp8:
      buffer.resize(out.size());
      return ReadFp8Rows(s, row_begin, buffer, out);
  }
  HEARTH_CHECK(false);
}

}  // namespace

absl::Status ReadBytes(const Location& at, uint64_t begin_bytes, std::span<uint8_t> out) {
  return at.file->Read(*at.tensor, begin_bytes, std::as_writable_bytes(out));
}

absl::Status ReadFloats(const Location& at, uint64_t begin, uint64_t cols, std::span<float> out) {
  const SourceDtype dtype = at.tensor->dtype;
  const uint64_t value_bytes = SourceDtypeBytes(dtype);
  std::vector<uint8_t> bytes;
  for (uint64_t done = 0; done < out.size();) {
    const uint64_t count = std::min<uint64_t>(out.size() - done, kChunkBytes / value_bytes);
    bytes.resize(count * value_bytes);
    HEARTH_RETURN_IF_ERROR(ReadBytes(at, (begin + done) * value_bytes, bytes));
    for (uint64_t i = 0; i < count; ++i) {
      const float value = DecodeFloat(dtype, bytes.data() + i * value_bytes);
      out[done + i] = value;
      if (std::isfinite(value)) continue;
      const uint64_t at_value = begin + done + i;
      return absl::DataLossError(absl::StrCat(TensorLabel(at), ": ", value, " at row ",
                                              at_value / cols, ", column ", at_value % cols));
    }
    done += count;
  }
  return absl::OkStatus();
}

absl::Status ReadMatrixRows(const MatrixSource& source, uint64_t row_begin, uint64_t row_count,
                            std::span<float> out) {
  HEARTH_CHECK(row_begin <= source.rows);
  HEARTH_CHECK(row_count <= source.rows - row_begin);
  HEARTH_CHECK(out.size() == row_count * source.cols);
  std::vector<uint8_t> buffer;
  const uint64_t chunk_rows =
      std::max<uint64_t>(1, kChunkBytes / std::max<uint64_t>(1, source.cols));
  for (uint64_t done = 0; done < row_count; done += chunk_rows) {
    const uint64_t rows = std::min(chunk_rows, row_count - done);
    HEARTH_RETURN_IF_ERROR(ReadChunk(source, row_begin + done, buffer,
                                     out.subspan(done * source.cols, rows * source.cols)));
  }
  return absl::OkStatus();
}

absl::Status ReadNvfp4(const MatrixSource& source, std::vector<uint8_t>& codes,
                       std::vector<uint8_t>& scales, float& multiplier) {
  HEARTH_CHECK(source.encoding == MatrixEncoding::kNvfp4);
  codes.resize(source.rows * source.cols / 2);
  HEARTH_RETURN_IF_ERROR(ReadBytes(source.weight, 0, codes));
  HEARTH_RETURN_IF_ERROR(ReadNvfp4Scales(source, 0, source.rows, scales));
  HEARTH_ASSIGN_OR_RETURN(multiplier, ReadMultiplier(source));
  return absl::OkStatus();
}

absl::Status ReadFp8Blocks(const MatrixSource& source, std::vector<uint8_t>& codes,
                           std::vector<float>& block_scales) {
  HEARTH_CHECK(source.encoding == MatrixEncoding::kFp8Blocks);
  codes.resize(source.rows * source.cols);
  HEARTH_RETURN_IF_ERROR(ReadBytes(source.weight, 0, codes));
  HEARTH_RETURN_IF_ERROR(CheckFp8Codes(codes, source.cols, 0, TensorLabel(source.weight)));
  const uint64_t block_cols = Blocks(source.cols);
  block_scales.resize(Blocks(source.rows) * block_cols);
  HEARTH_RETURN_IF_ERROR(ReadFloats(source.scale, 0, block_cols, block_scales));
  return CheckScaleGrid(block_scales, block_cols, TensorLabel(source.scale));
}

}  // namespace hearth
