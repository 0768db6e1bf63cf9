#include "pack/convert/expert_source.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr SourceDtype kFloatDtypes[] = {SourceDtype::kBf16, SourceDtype::kF16, SourceDtype::kF32};
constexpr const char* kProjectionNames[] = {"gate_proj", "up_proj", "down_proj"};

// F16 has bits that BF16 lacks, so only fp32 holds it exactly.
ExpertFormat FloatFormat(SourceDtype dtype) {
  return dtype == SourceDtype::kBf16 ? ExpertFormat::kBf16 : ExpertFormat::kF32;
}

absl::StatusOr<ExpertFormat> FormatOf(const MatrixSource& source) {
  switch (source.encoding) {
    case MatrixEncoding::kFloat:
      return FloatFormat(source.dtype());
    case MatrixEncoding::kFp8Blocks:
      return ExpertFormat::kFp8;
    case MatrixEncoding::kNvfp4:
      return ExpertFormat::kNvfp4;
    case MatrixEncoding::kFp8Tensor:
    case MatrixEncoding::kMxfp8:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(TensorLabel(source.weight),
                   ": a routed expert in FP8 without 128 x 128 block scales; accepted are NVFP4, "
                   "FP8 with weight_scale_inv, BF16, F16 and F32"));
}

absl::StatusOr<LayerExperts> FindPacked(TensorCatalog& catalog, const ModelGeometry& geometry,
                                        const std::string& prefix) {
  const uint64_t count = geometry.moe.expert_count, width = geometry.moe.expert_width;
  LayerExperts layer;
  HEARTH_ASSIGN_OR_RETURN(layer.gate_up, catalog.Require(prefix + "gate_up_proj"));
  HEARTH_ASSIGN_OR_RETURN(layer.down, catalog.Require(prefix + "down_proj"));
  const std::array<uint64_t, 3> gate_up_shape = {count, 2 * width, geometry.hidden};
  const std::array<uint64_t, 3> down_shape = {count, geometry.hidden, width};
  HEARTH_RETURN_IF_ERROR(CheckTensor(layer.gate_up, gate_up_shape, kFloatDtypes));
  HEARTH_RETURN_IF_ERROR(CheckTensor(layer.down, down_shape, kFloatDtypes));
  layer.format = FloatFormat(layer.gate_up.tensor->dtype);
  if (FloatFormat(layer.down.tensor->dtype) != layer.format) layer.format = ExpertFormat::kF32;
  return layer;
}

absl::Status CheckDefault(const QuantConfig& quant, const std::string& module,
                          const MatrixSource& source, ExpertFormat format) {
  const std::optional<QuantAlgo> expected = quant.DefaultAlgo(module);
  const bool fits = !expected ||
                    (*expected == QuantAlgo::kNvfp4 && format == ExpertFormat::kNvfp4) ||
                    (*expected == QuantAlgo::kFp8Blocks && format == ExpertFormat::kFp8);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(TensorLabel(source.weight), ": the configuration says ",
                   QuantAlgoName(*expected), ", the tensors are ", ExpertFormatName(format)));
}

absl::StatusOr<LayerExperts> FindSeparate(TensorCatalog& catalog, const QuantConfig& quant,
                                          const ModelGeometry& geometry,
                                          const std::string& prefix) {
  const uint64_t width = geometry.moe.expert_width, hidden = geometry.hidden;
  LayerExperts layer;
  layer.experts.resize(geometry.moe.expert_count);
  for (uint32_t e = 0; e < geometry.moe.expert_count; ++e) {
    for (size_t p = 0; p < 3; ++p) {
      const MatrixSpec spec = {.module = absl::StrCat(prefix, e, ".", kProjectionNames[p]),
                               .is_bare = false,
                               .shape = p == 2 ? std::vector<uint64_t>{hidden, width}
                                               : std::vector<uint64_t>{width, hidden}};
      MatrixSource& source = layer.experts[e][p];
      HEARTH_ASSIGN_OR_RETURN(source, FindMatrix(catalog, quant, spec));
      HEARTH_ASSIGN_OR_RETURN(const ExpertFormat format, FormatOf(source));
      if (e == 0 && p == 0) layer.format = format;
      if (format != layer.format) {
        return absl::InvalidArgumentError(
            absl::StrCat(TensorLabel(source.weight), ": ", ExpertFormatName(format),
                         ", the experts before it are ", ExpertFormatName(layer.format)));
      }
    }
  }
  return layer;
}

absl::Status ReadPackedPart(const SafetensorsSet::Location& at, uint64_t row_begin, uint32_t rows,
                            uint32_t cols, SourceMatrix& into) {
  into.values.resize(uint64_t{rows} * cols);
  return ReadFloats(at, row_begin * cols, cols, into.values);
}

absl::Status ReadSeparate(const MatrixSource& source, SourceMatrix& into) {
  switch (source.encoding) {
    case MatrixEncoding::kNvfp4:
      return ReadNvfp4(source, into.codes, into.scales, into.multiplier);
    case MatrixEncoding::kFp8Blocks:
      return ReadFp8Blocks(source, into.codes, into.block_scales);
    case MatrixEncoding::kFloat:
      into.values.resize(source.rows * source.cols);
      return ReadMatrixRows(source, 0, source.rows, into.values);
    case MatrixEncoding::kFp8Tensor:
    case MatrixEncoding::kMxfp8:
      break;
  }
  HEARTH_CHECK(false);  // refused by FormatOf()
}

std::string DialectOf(ExpertFormat format, bool has_divisor) {
  if (format != ExpertFormat::kNvfp4) return ExpertFormatName(format);
  return has_divisor ? "compressed-tensors-nvfp4" : "modelopt-nvfp4";
}

}  // namespace

absl::StatusOr<LayerExperts> FindExperts(TensorCatalog& catalog, const QuantConfig& quant,
                                         const ModelGeometry& geometry, const std::string& prefix,
                                         bool is_trunk) {
  const bool is_packed = catalog.Has(prefix + "gate_up_proj") || catalog.Has(prefix + "down_proj");
  HEARTH_ASSIGN_OR_RETURN(LayerExperts layer, is_packed
                                                  ? FindPacked(catalog, geometry, prefix)
                                                  : FindSeparate(catalog, quant, geometry, prefix));
  if (!is_trunk) return layer;
  MatrixSource first;
  if (is_packed) {
    first.weight = layer.gate_up;
  } else {
    first = layer.experts[0][0];
  }
  HEARTH_RETURN_IF_ERROR(CheckDefault(quant, prefix + "0.gate_proj", first, layer.format));
  return layer;
}

absl::Status ReadLayerExpert(const LayerExperts& layer, const ModelGeometry& geometry,
                             ExpertId expert, SourceExpert& into) {
  const uint32_t width = geometry.moe.expert_width, hidden = geometry.hidden;
  HEARTH_CHECK(expert.value < geometry.moe.expert_count);
  into.format = layer.format;
  SourceMatrix* const parts[] = {&into.gate, &into.up, &into.down};
  for (size_t p = 0; p < 3; ++p) {
    SourceMatrix& part = *parts[p];
    part.rows = p == 2 ? hidden : width;
    part.cols = p == 2 ? width : hidden;
    part.codes.clear();
    part.scales.clear();
    part.block_scales.clear();
    part.values.clear();
    part.multiplier = 1;
    if (!layer.experts.empty()) {
      HEARTH_RETURN_IF_ERROR(ReadSeparate(layer.experts[expert.value][p], part));
      continue;
    }
    // Rows of the packed tensor before this part: whole experts, and the gate rows before the up
    // rows.
    const uint64_t rows_per_expert = p == 2 ? hidden : 2 * uint64_t{width};
    const uint64_t row_begin = expert.value * rows_per_expert + (p == 1 ? width : 0);
    HEARTH_RETURN_IF_ERROR(
        ReadPackedPart(p == 2 ? layer.down : layer.gate_up, row_begin, part.rows, part.cols, part));
  }
  return absl::OkStatus();
}

std::string DialectOf(const std::vector<LayerExperts>& layers) {
  std::set<std::string> names;
  for (const LayerExperts& layer : layers) {
    if (layer.experts.empty()) names.insert(DialectOf(layer.format, false));
    for (const std::array<MatrixSource, 3>& expert : layer.experts) {
      for (const MatrixSource& source : expert) {
        names.insert(DialectOf(layer.format, source.has_divisor));
      }
    }
  }
  return absl::StrJoin(names, "+");
}

}  // namespace hearth
