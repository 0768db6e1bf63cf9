#include "pack/format/directory.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

uint32_t PackXtBits(XtBits bits) {
  return bits.gate | uint32_t{bits.up} << 8 | uint32_t{bits.down} << 16;
}

XtBits UnpackXtBits(uint32_t packed) {
  return {static_cast<uint8_t>(packed), static_cast<uint8_t>(packed >> 8),
          static_cast<uint8_t>(packed >> 16)};
}

class DirectoryBuilder {
 public:
  template <class T>
  void Add(std::span<const T> items) {
    static_assert(std::has_unique_object_representations_v<T>);
    const auto bytes = std::as_bytes(items);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  template <class T>
  void Add(const T& item) {
    Add(std::span(&item, 1));
  }
  std::vector<std::byte> Seal() {
    const uint32_t crc = Crc32c(bytes_);
    Add(crc);
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

// Takes fixed structs off the front of a directory; what is missing becomes an error at Finish().
class DirectoryCursor {
 public:
  explicit DirectoryCursor(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  bool Take(std::span<T> into) {
    if (into.size_bytes() > rest_.size()) return false;
    if (!into.empty()) std::memcpy(into.data(), rest_.data(), into.size_bytes());
    rest_ = rest_.subspan(into.size_bytes());
    return true;
  }
  template <class T>
  bool Take(T& into) {
    return Take(std::span(&into, 1));
  }
  uint64_t rest_bytes() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

absl::Status Damaged(const std::string& path, std::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": directory: ", ToAbsl(what)));
}

// The directory without its checksum, once that is right.
absl::StatusOr<std::span<const std::byte>> CheckDirectoryCrc(std::span<const std::byte> bytes,
                                                             const std::string& path) {
  uint32_t expected = 0;
  if (bytes.size() < sizeof(expected)) return Damaged(path, "too short for a checksum");
  const auto body = bytes.first(bytes.size() - sizeof(expected));
  std::memcpy(&expected, bytes.data() + body.size(), sizeof(expected));
  if (const uint32_t crc = Crc32c(body); crc != expected) {
    return Damaged(path,
                   absl::StrCat("checksum ", absl::Hex(crc), ", expected ", absl::Hex(expected)));
  }
  return body;
}

FileHeader MakeHeader(ContainerKind kind, uint64_t data_offset_bytes, uint64_t data_end_bytes,
                      uint64_t directory_bytes) {
  const uint64_t directory_offset = AlignUp(data_end_bytes, kTensorAlignBytes);
  return SealHeader({.kind = static_cast<uint32_t>(kind),
                     .file_bytes = directory_offset + directory_bytes,
                     .data_offset_bytes = data_offset_bytes,
                     .directory_offset_bytes = directory_offset,
                     .directory_bytes = directory_bytes});
}

bool ValidName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kTensorNameBytesMax &&
         std::all_of(name.begin(), name.end(), allowed);
}

bool KnownMatrixFormat(uint32_t format) {
  return format >= static_cast<uint32_t>(MatrixFormat::kF32) &&
         format <= static_cast<uint32_t>(MatrixFormat::kQ8);
}

// One entry against the rules; `end_bytes` is where the tensor before it ends.
absl::Status CheckTensor(const TensorEntry& e, const std::string& name, uint64_t end_bytes,
                         const FileHeader& header, const std::string& path) {
  if (!KnownMatrixFormat(e.format)) {
    return Damaged(path, absl::StrCat(name, ": unknown format ", e.format));
  }
  const auto format = static_cast<MatrixFormat>(e.format);
  const bool shape_fits = e.rows > 0 && e.rows <= kMatrixSideMax && e.cols > 0 &&
                          e.cols <= kMatrixSideMax &&
                          (format != MatrixFormat::kQ8 || e.cols % kQ8BlockValues == 0);
  if (!shape_fits) {
    return Damaged(path, absl::StrCat(name, ": shape (", e.rows, ", ", e.cols,
                                      ") does not fit format ", MatrixFormatName(format)));
  }
  const uint64_t expected_bytes = MatrixBytes(format, e.rows, e.cols);
  const uint64_t expected_offset = AlignUp(end_bytes, kTensorAlignBytes);
  if (e.bytes != expected_bytes || e.offset_bytes != expected_offset ||
      expected_bytes > header.directory_offset_bytes ||
      expected_offset > header.directory_offset_bytes - expected_bytes) {
    return Damaged(path, absl::StrCat(name, ": ", e.bytes, " bytes at ", e.offset_bytes,
                                      ", expected ", expected_bytes, " at ", expected_offset,
                                      " and the directory at ", header.directory_offset_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> NgramRowBytes(NgramRowFormat format, uint32_t row_dim) {
  switch (format) {
    case NgramRowFormat::kBf16:
      return uint64_t{row_dim} * 2;
    case NgramRowFormat::kFp8:
      return uint64_t{row_dim};
    case NgramRowFormat::kF32:
      return uint64_t{row_dim} * 4;
    case NgramRowFormat::kNvfp4:
      if (row_dim % kNvfp4BlockValues == 0) {
        return uint64_t{row_dim} / 2 + row_dim / kNvfp4BlockValues;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("NVFP4 n-gram rows of ", row_dim, " values: a multiple of 16 is needed"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown n-gram row format ", static_cast<uint32_t>(format)));
}

const char* NgramRowFormatName(NgramRowFormat format) {
  switch (format) {
    case NgramRowFormat::kBf16:
      return "bf16";
    case NgramRowFormat::kFp8:
      return "fp8";
    case NgramRowFormat::kNvfp4:
      return "nvfp4";
    case NgramRowFormat::kF32:
      return "f32";
  }
  return "unknown";
}

FileHeader PlaceTensors(std::span<TensorInfo> tensors) {
  uint64_t end_bytes = sizeof(FileHeader);
  uint64_t directory_bytes = sizeof(TensorDirectoryHeader) + sizeof(uint32_t);
  for (TensorInfo& t : tensors) {
    HEARTH_CHECK(ValidName(t.name));
    t.bytes = MatrixBytes(t.format, t.rows, t.cols);
    t.offset_bytes = AlignUp(end_bytes, kTensorAlignBytes);
    end_bytes = t.offset_bytes + t.bytes;
    directory_bytes += sizeof(TensorEntry) + t.name.size();
  }
  return MakeHeader(ContainerKind::kTensors, sizeof(FileHeader), end_bytes, directory_bytes);
}

FileHeader PlaceExperts(ExpertDirectory& directory) {
  uint64_t end_bytes = kExpertAlignBytes;
  directory.layer_offsets_bytes.clear();
  for (const ExpertLayout& layout : directory.layouts) {
    directory.layer_offsets_bytes.push_back(end_bytes);
    end_bytes += layout.stride_bytes() * directory.expert_count;
  }
  const uint64_t crc_count = uint64_t{directory.expert_count} * directory.layouts.size();
  const uint64_t directory_bytes = sizeof(ExpertDirectoryHeader) +
                                   directory.layouts.size() * sizeof(ExpertLayerEntry) +
                                   (crc_count + 1) * sizeof(uint32_t);
  return MakeHeader(ContainerKind::kExperts, kExpertAlignBytes, end_bytes, directory_bytes);
}

FileHeader PlaceNgram(const NgramDirectory& directory) {
  const auto row_bytes = NgramRowBytes(directory.format, directory.row_dim);
  HEARTH_CHECK(row_bytes.ok());
  const uint64_t chunks = (directory.row_count + kNgramRowsPerChunk - 1) / kNgramRowsPerChunk;
  return MakeHeader(ContainerKind::kNgram, kExpertAlignBytes,
                    kExpertAlignBytes + directory.row_count * *row_bytes,
                    sizeof(NgramDirectoryHeader) + (chunks + 1) * sizeof(uint32_t));
}

std::vector<std::byte> EncodeTensorDirectory(std::span<const TensorInfo> tensors) {
  std::string names;
  std::vector<TensorEntry> entries;
  for (const TensorInfo& t : tensors) {
    entries.push_back({.offset_bytes = t.offset_bytes,
                       .bytes = t.bytes,
                       .name_offset_bytes = static_cast<uint32_t>(names.size()),
                       .name_bytes = static_cast<uint32_t>(t.name.size()),
                       .format = static_cast<uint32_t>(t.format),
                       .rows = t.rows,
                       .cols = t.cols,
                       .crc32c = t.crc32c});
    names += t.name;
  }
  DirectoryBuilder builder;
  builder.Add(TensorDirectoryHeader{.tensor_count = static_cast<uint32_t>(tensors.size()),
                                    .names_bytes = static_cast<uint32_t>(names.size())});
  builder.Add(std::span<const TensorEntry>(entries));
  builder.Add(std::span<const char>(names));
  return builder.Seal();
}

std::vector<std::byte> EncodeExpertDirectory(const ExpertDirectory& directory) {
  DirectoryBuilder builder;
  builder.Add(ExpertDirectoryHeader{.layer_count = static_cast<uint32_t>(directory.layouts.size()),
                                    .expert_count = directory.expert_count});
  for (size_t layer = 0; layer < directory.layouts.size(); ++layer) {
    const ExpertLayout& layout = directory.layouts[layer];
    builder.Add(ExpertLayerEntry{.offset_bytes = directory.layer_offsets_bytes[layer],
                                 .blob_bytes = layout.blob_bytes(),
                                 .format = static_cast<uint32_t>(layout.format),
                                 .hidden = layout.hidden,
                                 .width = layout.width,
                                 .xt_bits = PackXtBits(layout.xt_bits)});
  }
  builder.Add(std::span<const uint32_t>(directory.crcs));
  return builder.Seal();
}

std::vector<std::byte> EncodeNgramDirectory(const NgramDirectory& directory) {
  const auto row_bytes = NgramRowBytes(directory.format, directory.row_dim);
  HEARTH_CHECK(row_bytes.ok());
  DirectoryBuilder builder;
  builder.Add(NgramDirectoryHeader{.row_count = directory.row_count,
                                   .row_dim = directory.row_dim,
                                   .row_bytes = static_cast<uint32_t>(*row_bytes),
                                   .format = static_cast<uint32_t>(directory.format),
                                   .scale_bits = std::bit_cast<uint32_t>(directory.scale),
                                   .rows_per_chunk = kNgramRowsPerChunk,
                                   .chunk_count = static_cast<uint32_t>(directory.crcs.size())});
  builder.Add(std::span<const uint32_t>(directory.crcs));
  return builder.Seal();
}

absl::StatusOr<std::vector<TensorInfo>> DecodeTensorDirectory(std::span<const std::byte> bytes,
                                                              const FileHeader& header,
                                                              const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const auto body, CheckDirectoryCrc(bytes, path));
  DirectoryCursor cursor(body);
  TensorDirectoryHeader counts;
  if (!cursor.Take(counts) || counts.tensor_count > kTensorsMax ||
      cursor.rest_bytes() !=
          uint64_t{counts.tensor_count} * sizeof(TensorEntry) + counts.names_bytes) {
    return Damaged(path, "its length does not follow from its counts");
  }
  std::vector<TensorEntry> entries(counts.tensor_count);
  std::string names(counts.names_bytes, '\0');
  HEARTH_CHECK(cursor.Take(std::span(entries)));
  HEARTH_CHECK(cursor.Take(std::span(names)));

  std::vector<TensorInfo> tensors;
  tensors.reserve(entries.size());
  uint64_t end_bytes = sizeof(FileHeader);
  uint64_t name_end = 0;
  for (const TensorEntry& e : entries) {
    if (e.name_offset_bytes != name_end || e.name_bytes > names.size() - name_end) {
      return Damaged(path,
                     absl::StrCat("name of tensor ", tensors.size(), " lies outside the names"));
    }
    std::string name = names.substr(name_end, e.name_bytes);
    if (!ValidName(name)) {
      return Damaged(path, absl::StrCat("name of tensor ", tensors.size(), " is not valid"));
    }
    HEARTH_RETURN_IF_ERROR(CheckTensor(e, name, end_bytes, header, path));
    name_end += e.name_bytes;
    end_bytes = e.offset_bytes + e.bytes;
    tensors.push_back({.name = std::move(name),
                       .format = static_cast<MatrixFormat>(e.format),
                       .rows = e.rows,
                       .cols = e.cols,
                       .offset_bytes = e.offset_bytes,
                       .bytes = e.bytes,
                       .crc32c = e.crc32c});
  }
  if (name_end != names.size() || header.data_offset_bytes != sizeof(FileHeader) ||
      AlignUp(end_bytes, kTensorAlignBytes) != header.directory_offset_bytes) {
    return Damaged(path, "tensors and names do not end where they should");
  }
  return tensors;
}

absl::StatusOr<ExpertDirectory> DecodeExpertDirectory(std::span<const std::byte> bytes,
                                                      const FileHeader& header,
                                                      const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const auto body, CheckDirectoryCrc(bytes, path));
  DirectoryCursor cursor(body);
  ExpertDirectoryHeader counts;
  if (!cursor.Take(counts) || counts.layer_count > kExpertLayersMax ||
      counts.expert_count > kExpertsPerLayerMax ||
      cursor.rest_bytes() !=
          uint64_t{counts.layer_count} * sizeof(ExpertLayerEntry) +
              uint64_t{counts.layer_count} * counts.expert_count * sizeof(uint32_t)) {
    return Damaged(path, "its length does not follow from its counts");
  }
  ExpertDirectory directory{.expert_count = counts.expert_count};
  uint64_t end_bytes = kExpertAlignBytes;
  for (uint32_t layer = 0; layer < counts.layer_count; ++layer) {
    ExpertLayerEntry e;
    HEARTH_CHECK(cursor.Take(e));
    const bool known = e.format >= static_cast<uint32_t>(ExpertFormat::kNvfp4) &&
                       e.format <= static_cast<uint32_t>(ExpertFormat::kXt);
    if (!known || e.hidden > kExpertSideMax || e.width > kExpertSideMax || e.xt_bits >> 24 != 0) {
      return Damaged(path, absl::StrCat("layer ", layer, ": unknown format ", e.format,
                                        " or shape (", e.hidden, ", ", e.width, ")"));
    }
    auto layout = ExpertLayout::Create(static_cast<ExpertFormat>(e.format), e.hidden, e.width,
                                       UnpackXtBits(e.xt_bits));
    if (!layout.ok()) return Annotate(layout.status(), absl::StrCat(path, ": layer ", layer));
    if (e.blob_bytes != layout->blob_bytes() || e.offset_bytes != end_bytes ||
        end_bytes > header.directory_offset_bytes) {
      return Damaged(path, absl::StrCat("layer ", layer, ": blobs of ", e.blob_bytes, " bytes at ",
                                        e.offset_bytes, ", expected ", layout->blob_bytes(), " at ",
                                        end_bytes));
    }
    directory.layouts.push_back(*layout);
    directory.layer_offsets_bytes.push_back(end_bytes);
    end_bytes += layout->stride_bytes() * counts.expert_count;  // below 2^43 * 2^16
  }
  if (end_bytes != header.directory_offset_bytes || header.data_offset_bytes != kExpertAlignBytes) {
    return Damaged(path, absl::StrCat("experts end at ", end_bytes, ", the directory is at ",
                                      header.directory_offset_bytes));
  }
  directory.crcs.resize(size_t{counts.layer_count} * counts.expert_count);
  HEARTH_CHECK(cursor.Take(std::span(directory.crcs)));
  return directory;
}

absl::StatusOr<NgramDirectory> DecodeNgramDirectory(std::span<const std::byte> bytes,
                                                    const FileHeader& header,
                                                    const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const auto body, CheckDirectoryCrc(bytes, path));
  DirectoryCursor cursor(body);
  NgramDirectoryHeader h;
  if (!cursor.Take(h) || cursor.rest_bytes() != uint64_t{h.chunk_count} * sizeof(uint32_t)) {
    return Damaged(path, "its length does not follow from its counts");
  }
  const auto format = static_cast<NgramRowFormat>(h.format);
  const absl::StatusOr<uint64_t> row_bytes = NgramRowBytes(format, h.row_dim);
  if (!row_bytes.ok()) return Annotate(row_bytes.status(), path + ": directory");
  const float scale = std::bit_cast<float>(h.scale_bits);
  if (h.row_count == 0 || h.row_count > kNgramRowsMax || h.row_dim == 0 ||
      h.row_dim > kNgramRowDimMax || h.row_bytes != *row_bytes || !std::isfinite(scale)) {
    return Damaged(path, absl::StrCat(h.row_count, " rows of ", h.row_dim, " values in ",
                                      h.row_bytes, " bytes, scale ", scale, ": out of range"));
  }
  const uint64_t chunks = (h.row_count + kNgramRowsPerChunk - 1) / kNgramRowsPerChunk;
  const uint64_t end_bytes = kExpertAlignBytes + h.row_count * *row_bytes;
  if (h.rows_per_chunk != kNgramRowsPerChunk || h.chunk_count != chunks ||
      header.data_offset_bytes != kExpertAlignBytes ||
      AlignUp(end_bytes, kTensorAlignBytes) != header.directory_offset_bytes) {
    return Damaged(path, absl::StrCat(h.chunk_count, " chunks of ", h.rows_per_chunk,
                                      " rows, data to ", end_bytes, ", directory at ",
                                      header.directory_offset_bytes, ": do not agree"));
  }
  NgramDirectory directory{
      .format = format, .row_count = h.row_count, .row_dim = h.row_dim, .scale = scale};
  directory.crcs.resize(h.chunk_count);
  HEARTH_CHECK(cursor.Take(std::span(directory.crcs)));
  return directory;
}

}  // namespace hearth
