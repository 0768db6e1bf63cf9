#include "pack/convert/matrix_source.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "pack/format/expert_layout.h"
#include "pack/quant/csf_scales.h"
#include "pack/quant/fp8_source.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Location = SafetensorsSet::Location;

constexpr SourceDtype kFloatDtypes[] = {SourceDtype::kBf16, SourceDtype::kF16, SourceDtype::kF32};
constexpr SourceDtype kScaleDtypes[] = {SourceDtype::kBf16, SourceDtype::kF32};
constexpr SourceDtype kF32Only[] = {SourceDtype::kF32};
constexpr SourceDtype kU8Only[] = {SourceDtype::kU8};
constexpr SourceDtype kU32Only[] = {SourceDtype::kU32};
constexpr SourceDtype kE4m3Only[] = {SourceDtype::kF8E4m3};
constexpr SourceDtype kE8m0Dtypes[] = {SourceDtype::kU8, SourceDtype::kF8E8m0};

uint64_t Blocks(uint64_t count) { return (count + kFp8BlockValues - 1) / kFp8BlockValues; }

absl::Status CheckDivides(const Location& at, uint64_t cols, uint64_t block) {
  if (cols % block == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(TensorLabel(at), ": rows of ", cols, " values, expected a multiple of ", block));
}

// One number, whether stored as a scalar or as [1].
absl::Status CheckScalar(const Location& at, std::span<const SourceDtype> dtypes) {
  constexpr std::array<uint64_t, 1> kOne = {1};
  const std::span<const uint64_t> shape(kOne);
  return CheckTensor(at, at.tensor->rank == 0 ? shape.first(0) : shape, dtypes);
}

// The matrix under construction: each function adds one partner.
class MatrixFinder {
 public:
  MatrixFinder(TensorCatalog& catalog, const MatrixSpec& spec) : catalog_(catalog), spec_(spec) {
    source_.rows = spec.shape.size() == 1 ? 1 : spec.shape[0];
    source_.cols = 1;
    const size_t first = spec.shape.size() == 1 ? 0 : 1;
    for (size_t i = first; i < spec.shape.size(); ++i) source_.cols *= spec.shape[i];
  }

  absl::StatusOr<MatrixSource> Find() {
    const std::string packed = absl::StrCat(spec_.module, ".weight_packed");
    if (catalog_.Has(packed)) {
      HEARTH_RETURN_IF_ERROR(Nvfp4(packed, ".weight_global_scale"));
      source_.has_divisor = true;
      return source_;
    }
    const std::string name = spec_.is_bare ? spec_.module : absl::StrCat(spec_.module, ".weight");
    HEARTH_ASSIGN_OR_RETURN(source_.weight, catalog_.Require(name));
    if (source_.dtype() == SourceDtype::kU8) {
      HEARTH_RETURN_IF_ERROR(Nvfp4(name, ".weight_scale_2"));
    } else if (source_.dtype() == SourceDtype::kF8E4m3) {
      HEARTH_RETURN_IF_ERROR(Fp8());
    } else {
      HEARTH_RETURN_IF_ERROR(CheckTensor(source_.weight, spec_.shape, kFloatDtypes));
    }
    return source_;
  }

 private:
  absl::StatusOr<Location> Partner(const char* suffix) {
    const std::string name = absl::StrCat(spec_.module, suffix);
    const Location at = catalog_.Take(name);
    if (at.tensor != nullptr) return at;
    return absl::NotFoundError(absl::StrCat(TensorLabel(source_.weight), " is ",
                                            DescribeTensor(*source_.weight.tensor),
                                            " and its partner ", name, " is missing"));
  }

  absl::Status Nvfp4(const std::string& weight_name, const char* global_suffix) {
    source_.encoding = MatrixEncoding::kNvfp4;
    HEARTH_ASSIGN_OR_RETURN(source_.weight, catalog_.Require(weight_name));
    HEARTH_RETURN_IF_ERROR(CheckDivides(source_.weight, source_.cols, kNvfp4BlockValues));
    const std::array<uint64_t, 2> code_shape = {source_.rows, source_.cols / 2};
    HEARTH_RETURN_IF_ERROR(CheckTensor(source_.weight, code_shape, kU8Only));
    source_.has_csf =
        catalog_.Has(absl::StrCat(spec_.module, ".weight_scale.nvfp4_csf_fixed")) ||
        catalog_.Has(absl::StrCat(spec_.module, ".weight_scale.nvfp4_csf_exceptions"));
    if (source_.has_csf) {
      HEARTH_RETURN_IF_ERROR(Csf());
    } else {
      HEARTH_ASSIGN_OR_RETURN(source_.scale, Partner(".weight_scale"));
      const std::array<uint64_t, 2> shape = {source_.rows, source_.cols / kNvfp4BlockValues};
      HEARTH_RETURN_IF_ERROR(CheckTensor(source_.scale, shape, kE4m3Only));
    }
    HEARTH_ASSIGN_OR_RETURN(source_.global, Partner(global_suffix));
    return CheckScalar(source_.global, kF32Only);
  }

  absl::Status Csf() {
    const uint64_t cols = source_.cols / kNvfp4BlockValues;
    HEARTH_ASSIGN_OR_RETURN(source_.scale, Partner(".weight_scale.nvfp4_csf_fixed"));
    HEARTH_ASSIGN_OR_RETURN(source_.exceptions, Partner(".weight_scale.nvfp4_csf_exceptions"));
    HEARTH_RETURN_IF_ERROR(CheckCsfShape(source_.rows, cols, TensorLabel(source_.scale)));
    const std::array<uint64_t, 2> shape = {source_.rows / 16, 16 * (1 + cols / 2)};
    HEARTH_RETURN_IF_ERROR(CheckTensor(source_.scale, shape, kU8Only));
    const std::array<uint64_t, 1> list = {source_.exceptions.tensor->value_count()};
    return CheckTensor(source_.exceptions, list, kU32Only);
  }

  absl::Status Fp8() {
    const std::array<uint64_t, 2> shape = {source_.rows, source_.cols};
    HEARTH_RETURN_IF_ERROR(CheckTensor(source_.weight, shape, kE4m3Only));
    const bool has_inverse = catalog_.Has(absl::StrCat(spec_.module, ".weight_scale_inv"));
    HEARTH_ASSIGN_OR_RETURN(source_.scale,
                            Partner(has_inverse ? ".weight_scale_inv" : ".weight_scale"));
    const SourceDtype dtype = source_.scale.tensor->dtype;
    if (dtype == SourceDtype::kU8 || dtype == SourceDtype::kF8E8m0) {
      source_.encoding = MatrixEncoding::kMxfp8;
      HEARTH_RETURN_IF_ERROR(CheckDivides(source_.weight, source_.cols, kMxfp8BlockValues));
      const std::array<uint64_t, 2> scales = {source_.rows, source_.cols / kMxfp8BlockValues};
      return CheckTensor(source_.scale, scales, kE8m0Dtypes);
    }
    if (!has_inverse) {
      source_.encoding = MatrixEncoding::kFp8Tensor;
      return CheckScalar(source_.scale, kScaleDtypes);
    }
    source_.encoding = MatrixEncoding::kFp8Blocks;
    const std::array<uint64_t, 2> blocks = {Blocks(source_.rows), Blocks(source_.cols)};
    return CheckTensor(source_.scale, blocks, kScaleDtypes);
  }

  TensorCatalog& catalog_;
  const MatrixSpec& spec_;
  MatrixSource source_;
};

std::optional<QuantAlgo> AlgoOf(MatrixEncoding encoding) {
  switch (encoding) {
    case MatrixEncoding::kFloat:
      return std::nullopt;
    case MatrixEncoding::kFp8Tensor:
      return QuantAlgo::kFp8Tensor;
    case MatrixEncoding::kFp8Blocks:
      return QuantAlgo::kFp8Blocks;
    case MatrixEncoding::kMxfp8:
      return QuantAlgo::kMxfp8;
    case MatrixEncoding::kNvfp4:
      return QuantAlgo::kNvfp4;
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckTensor(const Location& at, std::span<const uint64_t> shape,
                         std::span<const SourceDtype> dtypes) {
  const SourceTensor& tensor = *at.tensor;
  const bool dtype_fits = std::find(dtypes.begin(), dtypes.end(), tensor.dtype) != dtypes.end();
  if (dtype_fits && std::ranges::equal(tensor.shape(), shape)) return absl::OkStatus();
  std::vector<std::string> names;
  for (const SourceDtype dtype : dtypes) names.push_back(SourceDtypeName(dtype));
  return absl::InvalidArgumentError(
      absl::StrCat(TensorLabel(at), ": expected [", absl::StrJoin(shape, ", "), "] ",
                   absl::StrJoin(names, " or "), ", found ", DescribeTensor(tensor)));
}

absl::StatusOr<MatrixSource> FindMatrix(TensorCatalog& catalog, const QuantConfig& quant,
                                        const MatrixSpec& spec) {
  HEARTH_ASSIGN_OR_RETURN(MatrixSource source, MatrixFinder(catalog, spec).Find());
  const std::optional<QuantAlgo> found = AlgoOf(source.encoding);
  const std::optional<QuantAlgo> listed = quant.ListedAlgo(spec.module);
  if (listed && listed != found) {
    return absl::InvalidArgumentError(absl::StrCat(
        TensorLabel(source.weight), ": the configuration says ", QuantAlgoName(*listed),
        ", the tensors are ", found ? QuantAlgoName(*found) : SourceDtypeName(source.dtype())));
  }
  return source;
}

}  // namespace hearth
