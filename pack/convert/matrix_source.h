// Where one weight of a checkpoint lies and how it is encoded: the weight tensor and its partners,
// found by name and checked against each other when the checkpoint is opened, read when asked for.
//   kFloat       weight BF16, F16 or F32
//   kFp8Tensor   weight F8_E4M3, weight_scale: one number
//   kFp8Blocks   weight F8_E4M3, weight_scale_inv (ceil(rows/128), ceil(cols/128)); a factor,
//   despite "inv" kMxfp8       weight F8_E4M3, weight_scale U8 (rows, cols/32): E8M0 kNvfp4
//   ModelOpt: weight U8 (rows, cols/2), weight_scale F8_E4M3 (rows, cols/16) or its CSF
//                streams, weight_scale_2: the multiplier
//                compressed-tensors: weight_packed, weight_scale, weight_global_scale: its divisor
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/convert/quant_config.h"
#include "pack/convert/tensor_catalog.h"

namespace hearth {

enum class MatrixEncoding : uint8_t { kFloat, kFp8Tensor, kFp8Blocks, kMxfp8, kNvfp4 };

struct MatrixSource {
  MatrixEncoding encoding = MatrixEncoding::kFloat;
  uint64_t rows = 0;
  uint64_t cols = 0;
  SafetensorsSet::Location weight;
  SafetensorsSet::Location scale;       // kNvfp4 with CSF: the fixed stream
  SafetensorsSet::Location exceptions;  // CSF only
  SafetensorsSet::Location global;      // kNvfp4
  bool has_csf = false;
  bool has_divisor = false;  // `global` is a divisor

  SourceDtype dtype() const { return weight.tensor->dtype; }
};

// How a matrix source is named and shaped.
struct MatrixSpec {
  std::string module;           // canonical: "layers.0.self_attn.q_proj"
  bool is_bare = false;         // the tensor is the module's name, without ".weight"
  std::vector<uint64_t> shape;  // as in the checkpoint; all but the first dimension fold into cols,
                                // and a shape of one dimension is one row
};

// Finds the tensors of `spec` and takes them from the catalog. NotFound names a missing tensor or
// partner, InvalidArgument a wrong dtype or shape with what was expected, or a module that `quant`
// lists in another encoding.
absl::StatusOr<MatrixSource> FindMatrix(TensorCatalog& catalog, const QuantConfig& quant,
                                        const MatrixSpec& spec);

// InvalidArgument unless the tensor has this shape and one of these dtypes.
absl::Status CheckTensor(const SafetensorsSet::Location& at, std::span<const uint64_t> shape,
                         std::span<const SourceDtype> dtypes);

// Rows [row_begin, row_begin + row_count), decoded to fp32 (row_count, cols). DataLoss names tensor
// and position of a value that is not finite, of a NaN code and of a bad scale.
absl::Status ReadMatrixRows(const MatrixSource& source, uint64_t row_begin, uint64_t row_count,
                            std::span<float> out);

// The whole of a kNvfp4 matrix, scales as linear E4M3 and checked.
absl::Status ReadNvfp4(const MatrixSource& source, std::vector<uint8_t>& codes,
                       std::vector<uint8_t>& scales, float& multiplier);
// The whole of a kFp8Blocks matrix, checked.
absl::Status ReadFp8Blocks(const MatrixSource& source, std::vector<uint8_t>& codes,
                           std::vector<float>& block_scales);

// Values [begin, begin + out.size()) of a BF16, F16 or F32 tensor. `cols` is for messages only.
absl::Status ReadFloats(const SafetensorsSet::Location& at, uint64_t begin, uint64_t cols,
                        std::span<float> out);
// Bytes of a tensor as unsigned numbers.
absl::Status ReadBytes(const SafetensorsSet::Location& at, uint64_t begin_bytes,
                       std::span<uint8_t> out);

}  // namespace hearth
