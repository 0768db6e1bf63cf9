#include "pack/convert/ngram_source.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "pack/convert/matrix_source.h"
#include "pack/format/expert_layout.h"
#include "pack/quant/fp8_source.h"
#include "pack/quant/nvfp4_source.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Location = SafetensorsSet::Location;

constexpr SourceDtype kIntDtypes[] = {SourceDtype::kI64, SourceDtype::kU64};
constexpr SourceDtype kScaleDtypes[] = {SourceDtype::kBf16, SourceDtype::kF32};
constexpr SourceDtype kE4m3Only[] = {SourceDtype::kF8E4m3};
constexpr uint64_t kChunkRows = 4096;  // of an NVFP4 table, whose rows are put together here

// Empty when the file has no such tensor.
absl::StatusOr<std::vector<uint64_t>> ReadConstants(TensorCatalog& catalog, const std::string& name,
                                                    uint64_t count) {
  const Location at = catalog.Take(name);
  if (at.tensor == nullptr) return std::vector<uint64_t>();
  const std::array<uint64_t, 1> shape = {count};
  HEARTH_RETURN_IF_ERROR(CheckTensor(at, shape, kIntDtypes));
  std::vector<uint64_t> values(count);
  HEARTH_RETURN_IF_ERROR(at.file->Read(*at.tensor, 0, std::as_writable_bytes(std::span(values))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] <= INT64_MAX) continue;
    return absl::DataLossError(absl::StrCat(TensorLabel(at), ": value ", i, " is negative"));
  }
  return values;
}

absl::Status FillConstants(TensorCatalog& catalog, const std::string& embedding, HfConfig& config) {
  NgramGeometry& ngram = config.geometry.ngram;
  HEARTH_ASSIGN_OR_RETURN(
      std::vector<uint64_t> multipliers,
      ReadConstants(catalog, embedding + "layer_multipliers", ngram.ngram_size));
  HEARTH_ASSIGN_OR_RETURN(
      std::vector<uint64_t> head_rows,
      ReadConstants(catalog, embedding + "ngram_heads_vocab_sizes", ngram.head_count()));
  HEARTH_ASSIGN_OR_RETURN(
      std::vector<uint64_t> head_offsets,
      ReadConstants(catalog, embedding + "ngram_heads_offsets", ngram.head_count()));
  if (multipliers.empty() || head_rows.empty() || head_offsets.empty()) {
    if (config.ngram_derivation.vocab_base == 0) {
      return absl::NotFoundError(
          absl::StrCat(catalog.dir(), ": no ", embedding,
                       "{layer_multipliers, ngram_heads_vocab_sizes, ngram_heads_offsets}, and "
                       "config.json has no ngram_vocab_size_base to derive them from"));
    }
    const uint64_t row_count = ngram.row_count;
    HEARTH_RETURN_IF_ERROR(
        DeriveNgramConstants(config.ngram_derivation, config.geometry.vocab_count, ngram));
    ngram.row_count = row_count;  // what the file holds; Validate() checks that it suffices
  }
  if (!multipliers.empty()) ngram.multipliers = std::move(multipliers);
  if (!head_rows.empty()) ngram.head_rows = std::move(head_rows);
  if (!head_offsets.empty()) ngram.head_offsets = std::move(head_offsets);
  return absl::OkStatus();
}

absl::Status SetFormat(const Location& weight, const HfConfig& config, NgramSource& source) {
  const uint32_t dim = config.geometry.ngram.row_dim;
  source.row_dim = dim;
  switch (weight.tensor->dtype) {
    case SourceDtype::kBf16:
      source.format = NgramRowFormat::kBf16;
      source.row_bytes = uint64_t{dim} * 2;
      return absl::OkStatus();
    case SourceDtype::kF32:
      source.format = NgramRowFormat::kF32;
      source.row_bytes = uint64_t{dim} * 4;
      return absl::OkStatus();
    case SourceDtype::kF8E4m3:
      source.format = NgramRowFormat::kFp8;
      source.row_bytes = dim;
      return absl::OkStatus();
    case SourceDtype::kU8:
      source.format = NgramRowFormat::kNvfp4;
      source.row_bytes = dim / 2 + dim / kNvfp4BlockValues;
      if (dim % kNvfp4BlockValues == 0) return absl::OkStatus();
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(TensorLabel(weight), ": ", DescribeTensor(*weight.tensor), " as rows of ", dim,
                   "; accepted are BF16, F32, F8_E4M3, and U8 with NVFP4 blocks of 16"));
}

absl::Status AddPart(TensorCatalog& catalog, const HfConfig& config, const std::string& module,
                     NgramTable& table) {
  NgramTable::Part part;
  HEARTH_ASSIGN_OR_RETURN(part.weight, catalog.Require(module + "weight"));
  const SourceTensor& tensor = *part.weight.tensor;
  if (table.parts.empty()) HEARTH_RETURN_IF_ERROR(SetFormat(part.weight, config, table.source));
  const bool is_nvfp4 = table.source.format == NgramRowFormat::kNvfp4;
  const uint64_t dim = table.source.row_dim;
  const SourceDtype dtype =
      table.parts.empty() ? tensor.dtype : table.parts[0].weight.tensor->dtype;
  part.row_count = tensor.rank > 0 ? tensor.dims[0] : 0;
  const std::array<uint64_t, 2> shape = {part.row_count, is_nvfp4 ? dim / 2 : dim};
  HEARTH_RETURN_IF_ERROR(CheckTensor(part.weight, shape, std::span(&dtype, 1)));
  if (is_nvfp4) {
    HEARTH_ASSIGN_OR_RETURN(part.scale, catalog.Require(module + "weight_scale"));
    const std::array<uint64_t, 2> scales = {part.row_count, dim / kNvfp4BlockValues};
    HEARTH_RETURN_IF_ERROR(CheckTensor(part.scale, scales, kE4m3Only));
  }
  part.row_begin = table.source.row_count;
  table.source.row_count += part.row_count;
  table.parts.push_back(part);
  return absl::OkStatus();
}

// One number for the whole table. An FP8 or NVFP4 table without it is an error: a default of 1
// would load and speak nonsense.
absl::Status ReadScale(TensorCatalog& catalog, const std::string& table_name, NgramSource& source) {
  if (source.format != NgramRowFormat::kFp8 && source.format != NgramRowFormat::kNvfp4) {
    return absl::OkStatus();
  }
  const char* suffix = source.format == NgramRowFormat::kFp8 ? "weight_scale" : "weight_scale_2";
  HEARTH_ASSIGN_OR_RETURN(const Location at, catalog.Require(table_name + suffix));
  constexpr std::array<uint64_t, 1> kOne = {1};
  const auto shape = std::span<const uint64_t>(kOne).first(std::min<size_t>(at.tensor->rank, 1));
  HEARTH_RETURN_IF_ERROR(CheckTensor(at, shape, kScaleDtypes));
  std::array<float, 1> value;
  HEARTH_RETURN_IF_ERROR(ReadFloats(at, 0, 1, value));
  HEARTH_ASSIGN_OR_RETURN(source.scale, CheckMultiplier(value[0], TensorLabel(at)));
  return absl::OkStatus();
}

absl::Status CheckRowValues(const NgramTable& table, const NgramTable::Part& part,
                            uint64_t row_begin, std::span<const std::byte> rows) {
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(rows.data()), rows.size());
  const std::string label = TensorLabel(part.weight);
  if (table.source.format == NgramRowFormat::kFp8) {
    return CheckFp8Codes(bytes, table.source.row_dim, row_begin, label);
  }
  // An exponent of all ones is an infinity or NaN; it lies in the upper half of a value in both
  // formats.
  const size_t value_bytes = table.source.format == NgramRowFormat::kBf16 ? 2 : 4;
  for (size_t i = 0; i < bytes.size(); i += value_bytes) {
    uint16_t upper = 0;
    std::memcpy(&upper, &bytes[i + value_bytes - 2], sizeof(upper));
    if ((upper & 0x7F80) != 0x7F80) continue;
    const uint64_t index = i / value_bytes;
    return absl::DataLossError(absl::StrCat(label, ": infinity or NaN at row ",
                                            row_begin + index / table.source.row_dim, ", column ",
                                            index % table.source.row_dim));
  }
  return absl::OkStatus();
}

// Rows [row_begin, ...) of one part, put together from codes and scales.
absl::Status ReadNvfp4Rows(const NgramTable& table, const NgramTable::Part& part,
                           uint64_t row_begin, std::span<std::byte> out) {
  const uint64_t code_bytes = table.source.row_dim / 2;
  const uint64_t scale_bytes = table.source.row_dim / kNvfp4BlockValues;
  const uint64_t row_count = out.size() / table.source.row_bytes;
  std::vector<uint8_t> codes, scales;
  for (uint64_t done = 0; done < row_count; done += kChunkRows) {
    const uint64_t rows = std::min(kChunkRows, row_count - done);
    codes.resize(rows * code_bytes);
    scales.resize(rows * scale_bytes);
    HEARTH_RETURN_IF_ERROR(ReadBytes(part.weight, (row_begin + done) * code_bytes, codes));
    HEARTH_RETURN_IF_ERROR(ReadBytes(part.scale, (row_begin + done) * scale_bytes, scales));
    HEARTH_RETURN_IF_ERROR(
        CheckBlockScales(scales, scale_bytes, row_begin + done, TensorLabel(part.scale)));
    for (uint64_t r = 0; r < rows; ++r) {
      std::byte* row = &out[(done + r) * table.source.row_bytes];
      std::memcpy(row, &codes[r * code_bytes], code_bytes);
      std::memcpy(row + code_bytes, &scales[r * scale_bytes], scale_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NgramTable> FindNgramTable(TensorCatalog& catalog, HfConfig& config) {
  NgramTable table;
  if (!config.has_ngram) return table;
  const std::string embedding =
      absl::StrCat("layers.", config.geometry.ngram.layer, ".ple.ple_embedding.");
  const std::string name = embedding + "ngram_embedding.";
  if (catalog.Has(name + "weight")) {
    HEARTH_RETURN_IF_ERROR(AddPart(catalog, config, name, table));
  } else {
    // Without split_ngram_parts the shards are counted; a gap shows as a row count that is too
    // small.
    for (uint32_t i = 0;; ++i) {
      const std::string module = absl::StrCat(name, "shard_", i, ".");
      const bool stated = config.ngram_part_count > 0;
      if (stated ? i == config.ngram_part_count : i > 0 && !catalog.Has(module + "weight")) break;
      HEARTH_RETURN_IF_ERROR(AddPart(catalog, config, module, table));
    }
  }
  HEARTH_RETURN_IF_ERROR(ReadScale(catalog, name, table.source));
  config.geometry.ngram.row_count = table.source.row_count;
  if (table.source.row_count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(TensorLabel(table.parts[0].weight), ": the n-gram table has no rows"));
  }
  HEARTH_RETURN_IF_ERROR(FillConstants(catalog, embedding, config));
  return table;
}

absl::Status ReadNgramTableRows(const NgramTable& table, uint64_t row_begin, uint64_t row_count,
                                std::span<std::byte> out) {
  const NgramSource& source = table.source;
  if (row_begin > source.row_count || row_count > source.row_count - row_begin) {
    return absl::OutOfRangeError(absl::StrCat("n-gram rows ", row_begin, " to ",
                                              row_begin + row_count, " of ", source.row_count));
  }
  HEARTH_CHECK(out.size() == row_count * source.row_bytes);
  for (const NgramTable::Part& part : table.parts) {
    const uint64_t begin = std::max(row_begin, part.row_begin);
    const uint64_t end = std::min(row_begin + row_count, part.row_begin + part.row_count);
    if (begin >= end) continue;
    const std::span<std::byte> rows =
        out.subspan((begin - row_begin) * source.row_bytes, (end - begin) * source.row_bytes);
    const uint64_t in_part = begin - part.row_begin;
    if (source.format == NgramRowFormat::kNvfp4) {
      HEARTH_RETURN_IF_ERROR(ReadNvfp4Rows(table, part, in_part, rows));
      continue;
    }
    HEARTH_RETURN_IF_ERROR(
        part.weight.file->Read(*part.weight.tensor, in_part * source.row_bytes, rows));
    HEARTH_RETURN_IF_ERROR(CheckRowValues(table, part, in_part, rows));
  }
  return absl::OkStatus();
}

}  // namespace hearth
