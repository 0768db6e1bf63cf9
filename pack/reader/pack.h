// Opens a pack: checks the manifest, every file's size and every directory, and hands out typed
// views. Reading is positioned and thread-safe; nothing is loaded before it is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/directory.h"
#include "pack/format/expert_layout.h"
#include "pack/format/geometry.h"
#include "pack/format/manifest.h"
#include "pack/format/matrix_layout.h"
#include "runtime/base/file.h"
#include "runtime/base/ids.h"

namespace hearth {

// dense.bin and mtp.bin; TensorInfo is in pack/format/directory.h.
class TensorFile {
 public:
  static absl::StatusOr<TensorFile> Open(const std::string& path);
  std::span<const TensorInfo> tensors() const { return tensors_; }  // in file order
  const TensorInfo* Find(std::string_view name) const;              // null when absent
  // Reads the bytes of one tensor and checks them. `into.size()` must be `info.bytes`.
  // DataLoss names file and tensor when the checksum differs.
  absl::Status Read(const TensorInfo& info, std::span<std::byte> into) const;
  const RandomAccessFile& file() const { return file_; }

 private:
  TensorFile(RandomAccessFile file, std::vector<TensorInfo> tensors);
  RandomAccessFile file_;
  std::vector<TensorInfo> tensors_;  // and a name index
  std::vector<uint32_t> by_name_;
};

// experts.bin: one blob per (layer, expert), the MTP layer's last. All experts of a layer share a
// layout.
class ExpertFile {
 public:
  static absl::StatusOr<ExpertFile> Open(const std::string& path);
  uint32_t layer_count() const { return static_cast<uint32_t>(directory_.layouts.size()); }
  uint32_t expert_count() const { return directory_.expert_count; }  // per layer
  const ExpertLayout& layout(LayerId layer) const { return directory_.layouts[layer.value]; }
  uint64_t offset_bytes(ExpertKey key) const;
  uint32_t crc32c(ExpertKey key) const;  // over layout(layer).blob_bytes()
  // Reads blob_bytes() into the front of `into` (at least that large) and checks them. DataLoss
  // names file, layer and expert.
  absl::Status Read(ExpertKey key, std::span<std::byte> into) const;
  const RandomAccessFile& file() const { return file_; }

 private:
  ExpertFile(RandomAccessFile file, ExpertDirectory directory);
  RandomAccessFile file_;
  ExpertDirectory directory_;
};

// ngram.bin: the hashed n-gram table, read a row at a time.
class NgramFile {
 public:
  static absl::StatusOr<NgramFile> Open(const std::string& path);
  NgramRowFormat format() const { return directory_.format; }
  uint64_t row_count() const { return directory_.row_count; }
  uint32_t row_dim() const { return directory_.row_dim; }
  uint64_t row_bytes() const { return row_bytes_; }
  float scale() const { return directory_.scale; }  // multiplies every value (1 for BF16 and F32)
  // Reads and decodes rows to fp32: out (row_ids.size(), row_dim). OutOfRange for a bad row id.
  // From any thread.
  absl::Status ReadRows(std::span<const uint64_t> row_ids, std::span<float> out) const;
  // The bytes of rows [row_begin, row_begin + row_count), as they are in the file.
  absl::Status ReadRowBytes(uint64_t row_begin, uint64_t row_count, std::span<std::byte> out) const;
  // Loads the whole table into memory and checks it; later ReadRows do no I/O.
  absl::Status LoadWhole();
  const RandomAccessFile& file() const { return file_; }

 private:
  NgramFile(RandomAccessFile file, NgramDirectory directory, uint64_t row_bytes,
            uint64_t rows_offset_bytes);
  void AskFor(uint64_t row_id) const;  // of the whole table in memory
  RandomAccessFile file_;
  NgramDirectory directory_;
  uint64_t row_bytes_ = 0;
  uint64_t rows_offset_bytes_ = 0;
  std::vector<std::byte> whole_;  // the rows, once LoadWhole() has run
};

struct Pack {
  // Refuses a pack whose files are not of the sizes that the manifest and their headers say, whose
  // directories are damaged, or whose contents do not fit its geometry. Reads no data: VerifyPack
  // does.
  static absl::StatusOr<Pack> Open(const std::string& dir);

  std::string dir;
  Manifest manifest;  // manifest.geometry is valid
  TensorFile dense;
  ExpertFile experts;
  std::unique_ptr<NgramFile> ngram;  // null when the model has no table
  std::unique_ptr<TensorFile> mtp;   // null when the model has no MTP head
};

}  // namespace hearth
