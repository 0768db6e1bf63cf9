// Writers of a pack's .bin files. Each is told at the start everything but the data, takes the data
// in file order, and is complete after Finish(). Same input, same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/directory.h"
#include "pack/format/manifest.h"
#include "pack/writer/hashed_file.h"

namespace hearth {

// dense.bin, mtp.bin.
class TensorFileWriter {
 public:
  // `tensors` says name, format, rows and cols; the rest is filled in.
  static absl::StatusOr<TensorFileWriter> Create(const std::string& dir, const std::string& name,
                                                 std::vector<TensorInfo> tensors);
  // More bytes of tensor `index`, which is the current one or, once that is complete, the next.
  absl::Status Append(size_t index, std::span<const std::byte> data);
  absl::StatusOr<PackFile> Finish();
  std::span<const TensorInfo> tensors() const { return tensors_; }

 private:
  TensorFileWriter(HashedFile file, std::vector<TensorInfo> tensors, FileHeader header);
  HashedFile file_;
  std::vector<TensorInfo> tensors_;
  FileHeader header_;
  size_t current_ = 0;
};

// experts.bin: blobs layer by layer, expert by expert.
class ExpertFileWriter {
 public:
  static absl::StatusOr<ExpertFileWriter> Create(const std::string& dir, const std::string& name,
                                                 std::vector<ExpertLayout> layouts,
                                                 uint32_t expert_count);
  // The next blob, blob_bytes() of its layer, and its checksum.
  absl::Status Append(std::span<const std::byte> blob, uint32_t crc32c);
  // The next blob, all zeros, as a hole in the file. `crc32c` is that of blob_bytes() zeros.
  absl::Status AppendHole(uint32_t crc32c);
  absl::StatusOr<PackFile> Finish();

 private:
  ExpertFileWriter(HashedFile file, ExpertDirectory directory, FileHeader header);
  HashedFile file_;
  ExpertDirectory directory_;
  FileHeader header_;
};

// ngram.bin: rows in order, any number at a time.
class NgramFileWriter {
 public:
  // `table` says format, row_count, row_dim and scale.
  static absl::StatusOr<NgramFileWriter> Create(const std::string& dir, const std::string& name,
                                                NgramDirectory table);
  absl::Status Append(std::span<const std::byte> rows);  // whole rows
  absl::StatusOr<PackFile> Finish();

 private:
  NgramFileWriter(HashedFile file, NgramDirectory directory, FileHeader header, uint64_t row_bytes);
  HashedFile file_;
  NgramDirectory directory_;
  FileHeader header_;
  uint64_t row_bytes_ = 0;
  uint64_t rows_ = 0;       // appended so far
  uint32_t chunk_crc_ = 0;  // of the rows of the current chunk
};

}  // namespace hearth
