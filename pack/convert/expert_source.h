// Where the routed experts of one layer lie: all in two packed tensors, or one by one.
//   packed     experts.gate_up_proj (experts, 2 * width, hidden): gate rows, then up rows;
//              experts.down_proj (experts, hidden, width). BF16, F16 or F32
//   one by one experts.E.{gate,up,down}_proj in any encoding of matrix_source.h but MXFP8 and FP8
//   with one
//              scale
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/convert/checkpoint.h"
#include "pack/convert/matrix_source.h"
#include "pack/format/geometry.h"

namespace hearth {

struct LayerExperts {
  ExpertFormat format = ExpertFormat::kNvfp4;
  SafetensorsSet::Location gate_up, down;            // packed
  std::vector<std::array<MatrixSource, 3>> experts;  // one by one: gate, up, down; else empty
};

// `prefix` is canonical: "layers.3.mlp.experts." All experts share one format, else InvalidArgument
// names the first that differs. With `is_trunk`, experts that the configuration does not exclude
// must have its default encoding.
absl::StatusOr<LayerExperts> FindExperts(TensorCatalog& catalog, const QuantConfig& quant,
                                         const ModelGeometry& geometry, const std::string& prefix,
                                         bool is_trunk);

absl::Status ReadLayerExpert(const LayerExperts& layer, const ModelGeometry& geometry,
                             ExpertId expert, SourceExpert& into);

// "bf16", "f32", "fp8", "modelopt-nvfp4", "compressed-tensors-nvfp4"; several are joined by "+".
std::string DialectOf(const std::vector<LayerExperts>& layers);

}  // namespace hearth
