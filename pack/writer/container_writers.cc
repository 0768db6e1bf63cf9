#include "pack/writer/container_writers.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::StatusOr<HashedFile> Begin(const std::string& dir, const std::string& name,
                                 const FileHeader& header) {
  HEARTH_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(dir, name));
  HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(&header, 1))));
  HEARTH_RETURN_IF_ERROR(file.PadTo(header.data_offset_bytes));
  return file;
}

absl::StatusOr<PackFile> End(HashedFile& file, const FileHeader& header,
                             std::span<const std::byte> directory) {
  HEARTH_CHECK(directory.size() == header.directory_bytes);
  HEARTH_RETURN_IF_ERROR(file.PadTo(header.directory_offset_bytes));
  HEARTH_RETURN_IF_ERROR(file.Append(directory));
  return file.Finish();
}

}  // namespace

TensorFileWriter::TensorFileWriter(HashedFile file, std::vector<TensorInfo> tensors,
                                   FileHeader header)
    : file_(std::move(file)), tensors_(std::move(tensors)), header_(header) {}

absl::StatusOr<TensorFileWriter> TensorFileWriter::Create(const std::string& dir,
                                                          const std::string& name,
                                                          std::vector<TensorInfo> tensors) {
  const FileHeader header = PlaceTensors(tensors);
  HEARTH_ASSIGN_OR_RETURN(HashedFile file, Begin(dir, name, header));
  return TensorFileWriter(std::move(file), std::move(tensors), header);
}

absl::Status TensorFileWriter::Append(size_t index, std::span<const std::byte> data) {
  const auto end = [this](size_t i) { return tensors_[i].offset_bytes + tensors_[i].bytes; };
  if (index != current_) {
    HEARTH_CHECK(index == current_ + 1 && file_.bytes() == end(current_));
    current_ = index;
  }
  TensorInfo& tensor = tensors_[index];
  if (file_.bytes() < tensor.offset_bytes) {
    HEARTH_RETURN_IF_ERROR(file_.PadTo(tensor.offset_bytes));
  }
  HEARTH_CHECK(data.size() <= end(index) - file_.bytes());
  tensor.crc32c = Crc32c(data, tensor.crc32c);
  return file_.Append(data);
}

absl::StatusOr<PackFile> TensorFileWriter::Finish() {
  HEARTH_CHECK(tensors_.empty() ||
               file_.bytes() == tensors_.back().offset_bytes + tensors_.back().bytes);
  return End(file_, header_, EncodeTensorDirectory(tensors_));
}

ExpertFileWriter::ExpertFileWriter(HashedFile file, ExpertDirectory directory, FileHeader header)
    : file_(std::move(file)), directory_(std::move(directory)), header_(header) {}

absl::StatusOr<ExpertFileWriter> ExpertFileWriter::Create(const std::string& dir,
                                                          const std::string& name,
                                                          std::vector<ExpertLayout> layouts,
                                                          uint32_t expert_count) {
  ExpertDirectory directory{.expert_count = expert_count, .layouts = std::move(layouts)};
  const FileHeader header = PlaceExperts(directory);
  HEARTH_ASSIGN_OR_RETURN(HashedFile file, Begin(dir, name, header));
  return ExpertFileWriter(std::move(file), std::move(directory), header);
}

absl::Status ExpertFileWriter::Append(std::span<const std::byte> blob, uint32_t crc32c) {
  const size_t index = directory_.crcs.size();
  const size_t layer = index / directory_.expert_count;
  HEARTH_CHECK(layer < directory_.layouts.size());
  const ExpertLayout& layout = directory_.layouts[layer];
  HEARTH_CHECK(blob.size() == layout.blob_bytes());
  HEARTH_RETURN_IF_ERROR(file_.Append(blob));
  directory_.crcs.push_back(crc32c);
  return file_.PadTo(directory_.layer_offsets_bytes[layer] +
                     (index % directory_.expert_count + 1) * layout.stride_bytes());
}

absl::Status ExpertFileWriter::AppendHole(uint32_t crc32c) {
  const size_t layer = directory_.crcs.size() / directory_.expert_count;
  HEARTH_CHECK(layer < directory_.layouts.size());
  directory_.crcs.push_back(crc32c);
  return file_.AppendHole(directory_.layouts[layer].stride_bytes());
}

absl::StatusOr<PackFile> ExpertFileWriter::Finish() {
  HEARTH_CHECK(directory_.crcs.size() == directory_.layouts.size() * directory_.expert_count);
  return End(file_, header_, EncodeExpertDirectory(directory_));
}

NgramFileWriter::NgramFileWriter(HashedFile file, NgramDirectory directory, FileHeader header,
                                 uint64_t row_bytes)
    : file_(std::move(file)),
      directory_(std::move(directory)),
      header_(header),
      row_bytes_(row_bytes) {}

absl::StatusOr<NgramFileWriter> NgramFileWriter::Create(const std::string& dir,
                                                        const std::string& name,
                                                        NgramDirectory table) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t row_bytes, NgramRowBytes(table.format, table.row_dim));
  const FileHeader header = PlaceNgram(table);
  HEARTH_ASSIGN_OR_RETURN(HashedFile file, Begin(dir, name, header));
  return NgramFileWriter(std::move(file), std::move(table), header, row_bytes);
}

absl::Status NgramFileWriter::Append(std::span<const std::byte> rows) {
  HEARTH_CHECK(rows.size() % row_bytes_ == 0);
  HEARTH_CHECK(rows.size() / row_bytes_ <= directory_.row_count - rows_);
  HEARTH_RETURN_IF_ERROR(file_.Append(rows));
  while (!rows.empty()) {
    const uint64_t chunk_left = kNgramRowsPerChunk - rows_ % kNgramRowsPerChunk;
    const uint64_t n = std::min<uint64_t>(rows.size() / row_bytes_, chunk_left);
    chunk_crc_ = Crc32c(rows.first(n * row_bytes_), chunk_crc_);
    rows = rows.subspan(n * row_bytes_);
    rows_ += n;
    if (n == chunk_left || rows_ == directory_.row_count) {
      directory_.crcs.push_back(std::exchange(chunk_crc_, 0u));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PackFile> NgramFileWriter::Finish() {
  HEARTH_CHECK(rows_ == directory_.row_count);
  return End(file_, header_, EncodeNgramDirectory(directory_));
}

}  // namespace hearth
