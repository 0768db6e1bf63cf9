#include "pack/convert/expert_repack.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "pack/quant/expert_bands.h"
#include "pack/quant/fp8_source.h"
#include "pack/quant/nvfp4_source.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

const char* ProjectionName(Projection p) {
  switch (p) {
    case Projection::kGate:
      return "gate";
    case Projection::kUp:
      return "up";
    case Projection::kDown:
      return "down";
  }
  return "unknown";
}

SourceMatrix& MatrixOf(SourceExpert& expert, Projection p) {
  return p == Projection::kGate ? expert.gate : (p == Projection::kUp ? expert.up : expert.down);
}

uint32_t Fp8Blocks(uint32_t side) { return (side + kFp8BlockValues - 1) / kFp8BlockValues; }

size_t Fp8ScaleCount(const BandShape& shape) {
  return size_t{Fp8Blocks(shape.rows)} * Fp8Blocks(shape.cols);
}

absl::Status CheckCounts(const SourceMatrix& m, ExpertFormat format, const BandShape& shape) {
  const size_t values = size_t{shape.rows} * shape.cols;
  bool fits = m.rows == shape.rows && m.cols == shape.cols;
  switch (format) {
    case ExpertFormat::kNvfp4:
      fits = fits && m.codes.size() == values / 2 && m.scales.size() == values / kNvfp4BlockValues;
      break;
    case ExpertFormat::kFp8:
      fits = fits && m.codes.size() == values && m.block_scales.size() == Fp8ScaleCount(shape);
      break;
    case ExpertFormat::kBf16:
    case ExpertFormat::kF32:
      fits = fits && m.values.size() == values;
      break;
    case ExpertFormat::kXt:  // no source comes in it
      fits = false;
      break;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected (", shape.rows, ", ", shape.cols, ") ",
                                                 ExpertFormatName(format), ", found (", m.rows,
                                                 ", ", m.cols, ")"));
}

// Codes and scales that are not numbers would come out as numbers of some kernel's choice.
absl::Status CheckNumbers(const SourceMatrix& m, ExpertFormat format, std::string_view name) {
  if (format == ExpertFormat::kNvfp4) {
    HEARTH_RETURN_IF_ERROR(CheckBlockScales(m.scales, m.cols / kNvfp4BlockValues, 0, name));
    return CheckMultiplier(m.multiplier, name).status();
  }
  if (format == ExpertFormat::kFp8) {
    HEARTH_RETURN_IF_ERROR(CheckFp8Codes(m.codes, m.cols, 0, name));
    return CheckScaleGrid(m.block_scales, Fp8Blocks(m.cols), name);
  }
  return absl::OkStatus();
}

void DecodeToValues(SourceMatrix& m, ExpertFormat format) {
  if (format == ExpertFormat::kBf16 || format == ExpertFormat::kF32) return;
  m.values.resize(size_t{m.rows} * m.cols);
  if (format == ExpertFormat::kNvfp4) {
    DecodeNvfp4(m.codes, m.scales, m.multiplier, m.values);
    return;
  }
  const uint32_t grid_cols = Fp8Blocks(m.cols);
  for (uint32_t row = 0; row < m.rows; ++row) {
    const size_t grid_row = row / kFp8BlockValues;
    DecodeFp8BlockRow(
        std::span(m.codes).subspan(size_t{row} * m.cols, m.cols),
        std::span<const float>(m.block_scales).subspan(grid_row * grid_cols, grid_cols),
        std::span(m.values).subspan(size_t{row} * m.cols, m.cols));
  }
}

absl::Status QuantizeMatrix(SourceMatrix& m, RepackStats& stats) {
  m.codes.resize(m.values.size() / 2);
  m.scales.resize(m.values.size() / kNvfp4BlockValues);
  return QuantizeNvfp4(m.values, m.rows, m.cols, m.codes, m.scales, m.multiplier, stats.error);
}

// Checks a matrix of any source format and leaves its values decoded.
absl::Status DecodeSource(SourceMatrix& m, ExpertFormat format, const BandShape& shape,
                          Projection p) {
  if (absl::Status status = CheckCounts(m, format, shape); !status.ok()) {
    return Annotate(status, ProjectionName(p));
  }
  HEARTH_RETURN_IF_ERROR(CheckNumbers(m, format, ProjectionName(p)));
  DecodeToValues(m, format);
  return absl::OkStatus();
}

void StoreFloats(std::span<std::byte> blob, uint64_t offset_bytes, std::span<const float> values) {
  HEARTH_CHECK(offset_bytes + values.size_bytes() <= blob.size());
  std::memcpy(blob.data() + offset_bytes, values.data(), values.size_bytes());
}

absl::Status PackMatrix(const ExpertLayout& layout, Projection p, ExpertFormat from,
                        SourceMatrix& m, std::span<std::byte> blob, RepackStats& stats) {
  const BandShape shape = ShapeOf(layout, p);
  if (absl::Status status = CheckCounts(m, from, shape); !status.ok()) {
    return Annotate(status, ProjectionName(p));
  }
  HEARTH_RETURN_IF_ERROR(CheckNumbers(m, from, ProjectionName(p)));
  if (from != layout.format) {
    DecodeToValues(m, from);
    if (layout.format == ExpertFormat::kNvfp4) HEARTH_RETURN_IF_ERROR(QuantizeMatrix(m, stats));
  }
  stats.values += size_t{shape.rows} * shape.cols;
  const auto bands = blob.subspan(layout.projection_offset_bytes(p), shape.bytes());
  switch (layout.format) {
    case ExpertFormat::kNvfp4:
      InterleaveNvfp4(shape, m.codes, m.scales, bands);
      StoreFloats(blob, layout.scale_offset_bytes(p), std::span(&m.multiplier, 1));
      break;
    case ExpertFormat::kFp8:
      InterleaveFp8(shape, m.codes, bands);
      StoreFloats(blob, layout.scale_offset_bytes(p), m.block_scales);
      break;
    case ExpertFormat::kBf16:
      stats.inexact_values += InterleaveBf16(shape, m.values, bands);
      break;
    case ExpertFormat::kF32:
      InterleaveF32(shape, m.values, bands);
      break;
    case ExpertFormat::kXt:
      HEARTH_CHECK(false);
  }
  return absl::OkStatus();
}

}  // namespace

void RepackStats::Add(const RepackStats& other) {
  values += other.values;
  inexact_values += other.inexact_values;
  error.Add(other.error);
}

bool CanRepack(ExpertFormat from, ExpertFormat to) {
  if (to == ExpertFormat::kXt || from == ExpertFormat::kXt) return false;
  return from == to || to == ExpertFormat::kNvfp4 ||
         (from == ExpertFormat::kNvfp4 && to == ExpertFormat::kBf16);
}

absl::Status PackExpert(const ExpertLayout& layout, SourceExpert& source, std::span<std::byte> blob,
                        RepackStats& stats) {
  HEARTH_CHECK(blob.size() == layout.blob_bytes());
  HEARTH_CHECK(CanRepack(source.format, layout.format));
  const auto trailer = blob.subspan(layout.trailer_offset_bytes());
  std::fill(trailer.begin(), trailer.end(), std::byte{0});
  for (const Projection p : kProjections) {
    HEARTH_RETURN_IF_ERROR(PackMatrix(layout, p, source.format, MatrixOf(source, p), blob, stats));
  }
  return absl::OkStatus();
}

absl::Status DecodeSourceExpert(const ExpertLayout& shape, SourceExpert& source) {
  for (const Projection p : kProjections) {
    const BandShape matrix = {.rows = shape.rows(p), .cols = shape.cols(p)};
    HEARTH_RETURN_IF_ERROR(DecodeSource(MatrixOf(source, p), source.format, matrix, p));
  }
  return absl::OkStatus();
}

bool CanEncodeXt(ExpertFormat from) { return from != ExpertFormat::kXt; }

absl::Status EncodeXtExperts(const XtEncoder& encoder, const ExpertLayout& layout,
                             std::span<const XtExpertJob> experts) {
  HEARTH_CHECK(layout.format == ExpertFormat::kXt);
  std::vector<XtMatrixJob> jobs;
  for (const XtExpertJob& expert : experts) {
    HEARTH_CHECK(expert.blob.size() == layout.blob_bytes() && CanEncodeXt(expert.source->format));
    std::fill(expert.blob.begin(), expert.blob.end(), std::byte{0});
    HEARTH_RETURN_IF_ERROR(DecodeSourceExpert(layout, *expert.source));
    for (const Projection p : kProjections) {
      const XtShape shape = layout.xt_shape(p);
      jobs.push_back(
          {.shape = shape,
           .values = MatrixOf(*expert.source, p).values,
           .feedback = p == Projection::kDown ? expert.down : expert.gate_up,
           .matrix = expert.blob.subspan(layout.projection_offset_bytes(p), shape.bytes())});
    }
  }
  HEARTH_RETURN_IF_ERROR(encoder.Encode(jobs));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const XtExpertJob& expert = experts[i / kProjections.size()];
    StoreFloats(expert.blob, layout.scale_offset_bytes(kProjections[i % kProjections.size()]),
                std::span(&jobs[i].multiplier, 1));
    expert.stats->values += jobs[i].stats.weights;
    expert.stats->error.Add(jobs[i].stats.error);
  }
  return absl::OkStatus();
}

void DecodeExpertValues(const ExpertLayout& layout, std::span<const std::byte> blob,
                        SourceExpert& out) {
  HEARTH_CHECK(blob.size() >= layout.blob_bytes());
  if (layout.format != ExpertFormat::kXt) {
    UnpackExpert(layout, blob, out);
    for (const Projection p : kProjections) DecodeToValues(MatrixOf(out, p), layout.format);
    out.format = ExpertFormat::kF32;
    return;
  }
  for (const Projection p : kProjections) {
    const XtShape shape = layout.xt_shape(p);
    SourceMatrix& m = MatrixOf(out, p);
    m.rows = shape.rows;
    m.cols = shape.cols;
    m.values.resize(size_t{shape.rows} * shape.cols);
    float multiplier;
    std::memcpy(&multiplier, blob.data() + layout.scale_offset_bytes(p), sizeof(multiplier));
    DecodeXtMatrix(shape, blob.subspan(layout.projection_offset_bytes(p), shape.bytes()),
                   multiplier, m.values);
  }
  out.format = ExpertFormat::kF32;
}

void UnpackExpert(const ExpertLayout& layout, std::span<const std::byte> blob, SourceExpert& out) {
  HEARTH_CHECK(blob.size() >= layout.blob_bytes());
  out.format = layout.format;
  for (const Projection p : kProjections) {
    const BandShape shape = ShapeOf(layout, p);
    const auto bands = blob.subspan(layout.projection_offset_bytes(p), shape.bytes());
    const size_t values = size_t{shape.rows} * shape.cols;
    SourceMatrix& m = MatrixOf(out, p);
    m.rows = shape.rows;
    m.cols = shape.cols;
    switch (layout.format) {
      case ExpertFormat::kNvfp4:
        m.codes.resize(values / 2);
        m.scales.resize(values / kNvfp4BlockValues);
        DeinterleaveNvfp4(shape, bands, m.codes, m.scales);
        std::memcpy(&m.multiplier, blob.data() + layout.scale_offset_bytes(p), sizeof(float));
        break;
      case ExpertFormat::kFp8:
        m.codes.resize(values);
        m.block_scales.resize(Fp8ScaleCount(shape));
        DeinterleaveFp8(shape, bands, m.codes);
        std::memcpy(m.block_scales.data(), blob.data() + layout.scale_offset_bytes(p),
                    m.block_scales.size() * sizeof(float));
        break;
      case ExpertFormat::kBf16:
        m.values.resize(values);
        DeinterleaveBf16(shape, bands, m.values);
        break;
      case ExpertFormat::kF32:
        m.values.resize(values);
        DeinterleaveF32(shape, bands, m.values);
        break;
      case ExpertFormat::kXt:
        HEARTH_CHECK(false);
    }
  }
}

}  // namespace hearth
