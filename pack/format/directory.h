// The directories of a pack's files as values: encoded by the writers, decoded and checked by the
// readers. A decoded directory is consistent: every extent lies where the layout rules put it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/container.h"
#include "pack/format/expert_layout.h"
#include "pack/format/manifest.h"
#include "pack/format/matrix_layout.h"

namespace hearth {

inline constexpr uint32_t kTensorsMax = 1u << 16;
inline constexpr uint32_t kTensorNameBytesMax = 255;
inline constexpr uint32_t kMatrixSideMax = 1u << 28;  // rows or cols of a tensor
inline constexpr uint32_t kExpertLayersMax = 1u << 12;
inline constexpr uint32_t kExpertsPerLayerMax = 1u << 16;
inline constexpr uint32_t kExpertSideMax = 1u << 20;  // hidden or width
inline constexpr uint64_t kNgramRowsMax = uint64_t{1} << 40;
inline constexpr uint32_t kNgramRowDimMax = 1u << 16;
inline constexpr uint32_t kNgramRowsPerChunk = 4096;  // rows that share one checksum

// dense.bin and mtp.bin: named matrices. Vectors are matrices of one row, kept in fp32.
// Names are the checkpoint's without the "model.language_model." or "model." prefix and the
// ".weight" suffix: "embed_tokens", "layers.3.self_attn.q_proj", "mtp.fc_hidden",
// "layers.0.linear_attn.A_log".
struct TensorInfo {
  std::string name;
  MatrixFormat format = MatrixFormat::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t offset_bytes = 0;  // from the start of the file
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct ExpertDirectory {
  uint32_t expert_count = 0;  // per layer
  std::vector<ExpertLayout> layouts = {};
  std::vector<uint64_t> layer_offsets_bytes = {};  // first blob of each layer
  std::vector<uint32_t> crcs = {};                 // [layer][expert]
};

struct NgramDirectory {
  NgramRowFormat format = NgramRowFormat::kBf16;
  uint64_t row_count = 0;
  uint32_t row_dim = 0;
  float scale = 1;
  std::vector<uint32_t> crcs =
      {};  // one per kNgramRowsPerChunk rows, the last chunk may be shorter
};

// Bytes of one n-gram row; InvalidArgument when the dimension does not fit the format.
//   kBf16 2 * dim; kFp8 dim; kF32 4 * dim; kNvfp4 dim / 2 codes (even element low), then dim / 16
//   scales
absl::StatusOr<uint64_t> NgramRowBytes(NgramRowFormat format, uint32_t row_dim);
const char* NgramRowFormatName(NgramRowFormat format);  // "bf16", "fp8", "nvfp4", "f32"

// Where things go, decided before anything is written. Each fills in the offsets (and byte counts)
// and returns the sealed header of the file.
FileHeader PlaceTensors(std::span<TensorInfo> tensors);
FileHeader PlaceExperts(ExpertDirectory& directory);
FileHeader PlaceNgram(const NgramDirectory& directory);

std::vector<std::byte> EncodeTensorDirectory(std::span<const TensorInfo> tensors);
std::vector<std::byte> EncodeExpertDirectory(const ExpertDirectory& directory);
std::vector<std::byte> EncodeNgramDirectory(const NgramDirectory& directory);

// `bytes` is the whole directory; `header` has passed DecodeHeader; `path` is for messages.
absl::StatusOr<std::vector<TensorInfo>> DecodeTensorDirectory(std::span<const std::byte> bytes,
                                                              const FileHeader& header,
                                                              const std::string& path);
absl::StatusOr<ExpertDirectory> DecodeExpertDirectory(std::span<const std::byte> bytes,
                                                      const FileHeader& header,
                                                      const std::string& path);
absl::StatusOr<NgramDirectory> DecodeNgramDirectory(std::span<const std::byte> bytes,
                                                    const FileHeader& header,
                                                    const std::string& path);

}  // namespace hearth
