#include "pack/convert/dense_chunks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "pack/convert/build_pack.h"
#include "pack/format/float_codes.h"
#include "pack/quant/q8_encoder.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kChunkValues = 1u << 20;  // 4 MiB of fp32
constexpr uint32_t kQ8RowsMin = 32;
constexpr std::array<std::string_view, 12> kNeverQ8 = {
    "embed_tokens", "gate",      "shared_expert_gate", "block_inject_weight",
    "in_proj_a",    "in_proj_b", "index_qk_proj",      "conv1d",
    "k_proj",       "v_proj",    "key_proj",           "value_proj"};

// "layers.3.mlp.gate" -> "gate".
std::string_view LastPart(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// A vector in the checkpoint, as against a matrix that happens to have one row.
bool IsVector(const DenseInfo& info) {
  return info.rows == 1 && LastPart(info.name) != "shared_expert_gate";
}

MatrixFormat StoredFormat(const DenseInfo& info, bool q8) {
  if (IsVector(info) || IsConvolution(info)) return MatrixFormat::kF32;
  if (q8 && Q8TakesTensor(info)) return MatrixFormat::kQ8;
  return info.is_f32_source ? MatrixFormat::kF32 : MatrixFormat::kBf16;
}

uint64_t EncodeBf16Values(std::span<const float> values, std::span<std::byte> out) {
  uint64_t inexact = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t code = EncodeBf16(values[i]);
    inexact += std::bit_cast<uint32_t>(DecodeBf16(code)) != std::bit_cast<uint32_t>(values[i]);
    std::memcpy(out.data() + i * sizeof(code), &code, sizeof(code));
  }
  return inexact;
}

}  // namespace

bool IsConvolution(const DenseInfo& info) { return LastPart(info.name) == "conv1d"; }

bool Q8TakesTensor(const DenseInfo& info) {
  return info.rows >= kQ8RowsMin && info.cols % kQ8BlockValues == 0 &&
         std::find(kNeverQ8.begin(), kNeverQ8.end(), LastPart(info.name)) == kNeverQ8.end();
}

absl::StatusOr<DensePlan> PlanDense(std::span<const DenseInfo> infos, bool q8) {
  DensePlan plan;
  if (infos.size() > kTensorsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(infos.size(), " dense tensors, at most ", kTensorsMax, " expected"));
  }
  for (const DenseInfo& info : infos) {
    if (info.rows == 0 || info.rows > kMatrixSideMax || info.cols == 0 ||
        info.cols > kMatrixSideMax || info.name.empty() || info.name.size() > kTensorNameBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.name, ": shape (", info.rows, ", ", info.cols, ") is out of range"));
    }
    const bool transposed = IsConvolution(info);
    const auto tensor = static_cast<uint32_t>(plan.tensors.size());
    plan.tensors.push_back({.name = info.name,
                            .format = StoredFormat(info, q8),
                            .rows = static_cast<uint32_t>(transposed ? info.cols : info.rows),
                            .cols = static_cast<uint32_t>(transposed ? info.rows : info.cols)});
    plan.sources.push_back(info);
    const uint64_t whole_bands = kChunkValues / info.cols / kBandRows * kBandRows;
    const uint64_t step = transposed ? info.rows : std::max<uint64_t>(kBandRows, whole_bands);
    for (uint64_t row = 0; row < info.rows; row += step) {
      const uint64_t count = std::min(step, info.rows - row);
      plan.ranges.push_back({.tensor = tensor, .row_begin = row, .row_count = count});
      plan.chunk_bytes_max = std::max(plan.chunk_bytes_max, count * info.cols * 8);
    }
  }
  return plan;
}

absl::Status EncodeDenseChunk(const Checkpoint& checkpoint, const DensePlan& plan,
                              const DenseRange& range, DenseChunk& chunk) {
  const TensorInfo& tensor = plan.tensors[range.tensor];
  const uint64_t cols = plan.sources[range.tensor].cols;
  chunk.values.resize(range.row_count * cols);
  chunk.inexact_values = 0;
  HEARTH_RETURN_IF_ERROR(
      checkpoint.ReadDenseRows(tensor.name, range.row_begin, range.row_count, chunk.values));
  std::span<const float> values = chunk.values;
  if (IsConvolution(plan.sources[range.tensor])) {
    chunk.transposed.resize(values.size());
    for (uint64_t channel = 0; channel < range.row_count; ++channel) {
      for (uint64_t tap = 0; tap < cols; ++tap) {
        chunk.transposed[tap * range.row_count + channel] = values[channel * cols + tap];
      }
    }
    values = chunk.transposed;
  }
  switch (tensor.format) {
    case MatrixFormat::kF32: {
      const auto bytes = std::as_bytes(values);
      chunk.bytes.assign(bytes.begin(), bytes.end());
      return absl::OkStatus();
    }
    case MatrixFormat::kBf16:
      chunk.bytes.resize(values.size() * 2);
      chunk.inexact_values = EncodeBf16Values(values, chunk.bytes);
      return absl::OkStatus();
    case MatrixFormat::kQ8: {
      const auto rows = static_cast<uint32_t>(range.row_count);
      chunk.bytes.resize(MatrixBytes(MatrixFormat::kQ8, rows, tensor.cols));
      const absl::Status status = EncodeQ8Rows(values, rows, tensor.cols, chunk.bytes);
      if (status.ok()) return status;
      return Annotate(status, absl::StrCat(tensor.name, ", from row ", range.row_begin));
    }
  }
  return absl::InternalError(tensor.name);
}

}  // namespace hearth
