// Reads safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes without
// gaps. Parsing is a pure function of bytes; a file or a set of shards holds headers only, never
// tensor data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/file.h"

namespace hearth {

enum class SourceDtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4m3,
  kF8E5m2,
  kF8E8m0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};
const char* SourceDtypeName(SourceDtype dtype);  // as in a file: "BF16", "F8_E4M3"
uint64_t SourceDtypeBytes(SourceDtype dtype);

inline constexpr size_t kSourceRankMax = 8;

struct SourceTensor {
  std::string name;
  SourceDtype dtype = SourceDtype::kF32;
  uint32_t rank = 0;
  std::array<uint64_t, kSourceRankMax> dims = {};
  uint64_t offset_bytes = 0;  // from the start of the file
  uint64_t bytes = 0;

  std::span<const uint64_t> shape() const { return std::span(dims).first(rank); }
  uint64_t value_count() const { return bytes / SourceDtypeBytes(dtype); }
};

// "[2, 3] BF16"; a scalar is "[] F32".
std::string DescribeTensor(const SourceTensor& tensor);

// Bytes of length field and header together. `prefix` is the front of the file, 8 bytes or more
// unless the file is shorter (more lets it recognise a Git LFS pointer). Refuses a length beyond
// the file.
absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::span<const std::byte> prefix,
                                                uint64_t file_bytes, const std::string& path);

// The tensors of a file of `file_bytes` bytes, ordered by offset. `front` holds at least
// SafetensorsHeaderBytes() bytes. Refuses bad JSON, unknown keys and dtypes, duplicate names, a
// span that differs from shape x dtype, gaps, overlaps, and a file shorter or longer than its
// header says; every message is one line that names the path. Messages quote names escaped.
absl::StatusOr<std::vector<SourceTensor>> ParseSafetensors(std::span<const std::byte> front,
                                                           uint64_t file_bytes,
                                                           const std::string& path);

class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  std::span<const SourceTensor> tensors() const { return tensors_; }  // by offset
  // Reads bytes [begin, begin + into.size()) of one tensor of this file; they must lie in it.
  absl::Status Read(const SourceTensor& tensor, uint64_t begin_bytes,
                    std::span<std::byte> into) const;
  const RandomAccessFile& file() const { return file_; }

 private:
  SafetensorsFile(RandomAccessFile file, std::vector<SourceTensor> tensors);
  RandomAccessFile file_;
  std::vector<SourceTensor> tensors_;
};

// All shards of a checkpoint directory: those that model.safetensors.index.json names, or the
// single model.safetensors. Every tensor name is unique across them.
class SafetensorsSet {
 public:
  struct Location {
    const SafetensorsFile* file = nullptr;
    const SourceTensor* tensor = nullptr;
  };

  // Refuses, before any tensor is read: shards that are missing or damaged, tensors that the index
  // lists and no shard has or that lie in another shard than it says (a shard of another model),
  // and a tensor that is in two shards. Files that the index does not name are ignored.
  static absl::StatusOr<SafetensorsSet> Open(const std::string& dir);

  // By full name; no tensor: both pointers null.
  Location Find(std::string_view name) const;
  absl::Status Read(const Location& at, uint64_t begin_bytes, std::span<std::byte> into) const {
    return at.file->Read(*at.tensor, begin_bytes, into);
  }
  std::span<const SafetensorsFile> files() const { return files_; }  // in name order
  uint64_t tensor_count() const { return by_name_.size(); }

 private:
  SafetensorsSet() = default;
  std::vector<SafetensorsFile> files_;
  absl::flat_hash_map<std::string_view, Location> by_name_;  // keys live in files_
};

}  // namespace hearth
