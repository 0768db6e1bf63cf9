// The bytes around the data of dense.bin, mtp.bin, experts.bin and ngram.bin. FORMAT.md has the
// grammar.
//
//   file = FileHeader | zeros to data_offset_bytes | data | zeros to directory_offset_bytes |
//   directory
//
// Everything is little-endian. The directory comes last so that a file is written, checksummed and
// hashed in one pass; where it lies is known before the first byte of data, because all sizes are.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

inline constexpr std::array<char, 8> kContainerMagic = {'H', 'E', 'A', 'R', 'T', 'H', '\r', '\n'};
inline constexpr uint32_t kContainerVersion = 1;

// Values are on disk: append only.
enum class ContainerKind : uint32_t { kTensors = 1, kExperts = 2, kNgram = 3 };

const char* ContainerKindName(ContainerKind kind);  // "tensor file", "expert file", "n-gram file"

inline constexpr uint64_t kTensorAlignBytes = 64;         // of each tensor and of every directory
inline constexpr uint64_t kDirectoryBytesMax = 64 << 20;  // 16 M checksums: far above any model

struct FileHeader {
  std::array<char, 8> magic = kContainerMagic;
  uint32_t version = kContainerVersion;
  uint32_t kind = 0;  // ContainerKind
  uint64_t file_bytes = 0;
  uint64_t data_offset_bytes = 0;
  uint64_t directory_offset_bytes = 0;  // multiple of 64
  uint64_t directory_bytes = 0;         // to the end of the file, its checksum included
  uint64_t reserved0 = 0;
  uint32_t reserved1 = 0;
  uint32_t header_crc32c = 0;  // over the 60 bytes before it
};
static_assert(sizeof(FileHeader) == 64 && alignof(FileHeader) == 8);
static_assert(offsetof(FileHeader, header_crc32c) == 60);
static_assert(std::has_unique_object_representations_v<FileHeader>, "no padding on disk");

// Tensor directory = TensorDirectoryHeader | TensorEntry[tensor_count] | names | crc32c
struct TensorDirectoryHeader {
  uint32_t tensor_count = 0;
  uint32_t names_bytes = 0;  // all names, one after the other, nothing between them
};
struct TensorEntry {
  uint64_t offset_bytes = 0;  // from the start of the file
  uint64_t bytes = 0;
  uint32_t name_offset_bytes = 0;  // from the start of the names
  uint32_t name_bytes = 0;
  uint32_t format = 0;  // MatrixFormat
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t crc32c = 0;
};
static_assert(sizeof(TensorDirectoryHeader) == 8);
static_assert(sizeof(TensorEntry) == 40 && std::has_unique_object_representations_v<TensorEntry>);

// Expert directory = ExpertDirectoryHeader | ExpertLayerEntry[layer_count]
//                    | u32 crc32c[layer_count][expert_count] | crc32c
struct ExpertDirectoryHeader {
  uint32_t layer_count = 0;
  uint32_t expert_count = 0;
};
struct ExpertLayerEntry {
  uint64_t offset_bytes = 0;  // of the layer's first blob, from the start of the file
  uint64_t blob_bytes = 0;
  uint32_t format = 0;  // ExpertFormat
  uint32_t hidden = 0;
  uint32_t width = 0;
  uint32_t xt_bits = 0;  // kXt: gate | up << 8 | down << 16; else zero
};
static_assert(sizeof(ExpertDirectoryHeader) == 8);
static_assert(sizeof(ExpertLayerEntry) == 32);
static_assert(std::has_unique_object_representations_v<ExpertLayerEntry>);

// N-gram directory = NgramDirectoryHeader | u32 crc32c[chunk_count] | crc32c
struct NgramDirectoryHeader {
  uint64_t row_count = 0;
  uint32_t row_dim = 0;
  uint32_t row_bytes = 0;
  uint32_t format = 0;      // NgramRowFormat
  uint32_t scale_bits = 0;  // fp32
  uint32_t rows_per_chunk = 0;
  uint32_t chunk_count = 0;
};
static_assert(sizeof(NgramDirectoryHeader) == 32);
static_assert(std::has_unique_object_representations_v<NgramDirectoryHeader>);
static_assert(std::endian::native == std::endian::little);

// Fills in header_crc32c.
FileHeader SealHeader(FileHeader header);

// Checks everything that a header says against itself and against the file's real size; `path` is
// for messages. A wrong size names the expected and the found one.
absl::StatusOr<FileHeader> DecodeHeader(std::span<const std::byte, sizeof(FileHeader)> bytes,
                                        ContainerKind kind, uint64_t file_bytes,
                                        const std::string& path);

}  // namespace hearth
