// ngram.bin: opening, rows by id, the whole table.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "pack/reader/container_reader.h"
#include "pack/reader/pack.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/load.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// Rows lie anywhere in the table: those of a few rows further on are asked for.
constexpr size_t kRowsAhead = 16;
constexpr size_t kCacheLineBytes = 64;

uint8_t LoadU8(const std::byte* p) { return std::to_integer<uint8_t>(*p); }

constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values = {};
  for (uint32_t code = 0; code < values.size(); ++code) {
    values[code] = DecodeE4m3(static_cast<uint8_t>(code));
  }
  return values;
}();

// value = code * scale, in fp32; NVFP4: (code * block scale) * scale.
void DecodeRow(const NgramDirectory& table, const std::byte* row, std::span<float> out) {
  const auto dim = static_cast<uint32_t>(out.size());
  switch (table.format) {
    case NgramRowFormat::kBf16:
      for (uint32_t i = 0; i < dim; ++i)
        out[i] = DecodeBf16(Load<uint16_t>(row + 2 * i)) * table.scale;
      return;
    case NgramRowFormat::kFp8:
      for (uint32_t i = 0; i < dim; ++i) out[i] = kE4m3Values[LoadU8(row + i)] * table.scale;
      return;
    case NgramRowFormat::kF32:
      for (uint32_t i = 0; i < dim; ++i) out[i] = Load<float>(row + 4 * i) * table.scale;
      return;
    case NgramRowFormat::kNvfp4: {
      const std::byte* scales = row + dim / 2;
      for (uint32_t i = 0; i < dim; ++i) {
        const uint8_t pair = LoadU8(row + i / 2);
        const auto code = static_cast<uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4);
        const float block = kE4m3Values[LoadU8(scales + i / kNvfp4BlockValues)];
        out[i] = DecodeE2m1(code) * block * table.scale;
      }
      return;
    }
  }
}

}  // namespace

NgramFile::NgramFile(RandomAccessFile file, NgramDirectory directory, uint64_t row_bytes,
                     uint64_t rows_offset_bytes)
    : file_(std::move(file)),
      directory_(std::move(directory)),
      row_bytes_(row_bytes),
      rows_offset_bytes_(rows_offset_bytes) {}

absl::StatusOr<NgramFile> NgramFile::Open(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(OpenedContainer opened, OpenContainer(path, ContainerKind::kNgram));
  HEARTH_ASSIGN_OR_RETURN(auto directory,
                          DecodeNgramDirectory(opened.directory, opened.header, path));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t row_bytes,
                          NgramRowBytes(directory.format, directory.row_dim));
  return NgramFile(std::move(opened.file), std::move(directory), row_bytes,
                   opened.header.data_offset_bytes);
}

absl::Status NgramFile::ReadRows(std::span<const uint64_t> row_ids, std::span<float> out) const {
  HEARTH_CHECK(out.size() == row_ids.size() * row_dim());
  // Rows of real models are 90 to 640 bytes: no allocation on the decode path.
  absl::InlinedVector<std::byte, 1024> buffer(whole_.empty() ? row_bytes_ : 0);
  for (size_t i = 0; i < row_ids.size(); ++i) {
    if (row_ids[i] >= row_count()) {
      return absl::OutOfRangeError(
          absl::StrCat(file_.path(), ": row ", row_ids[i], " of ", row_count(), " asked for"));
    }
    const std::byte* row = buffer.data();
    if (whole_.empty()) {
      HEARTH_RETURN_IF_ERROR(file_.ReadAt(rows_offset_bytes_ + row_ids[i] * row_bytes_,
                                          std::span(buffer.data(), buffer.size())));
    } else {
      if (i + kRowsAhead < row_ids.size()) AskFor(row_ids[i + kRowsAhead]);
      row = whole_.data() + row_ids[i] * row_bytes_;
    }
    DecodeRow(directory_, row, out.subspan(i * row_dim(), row_dim()));
  }
  return absl::OkStatus();
}

void NgramFile::AskFor(uint64_t row_id) const {
  if (row_id >= row_count()) return;
  const std::byte* const row = whole_.data() + row_id * row_bytes_;
  for (uint64_t at = 0; at < row_bytes_; at += kCacheLineBytes) __builtin_prefetch(row + at);
}

absl::Status NgramFile::ReadRowBytes(uint64_t row_begin, uint64_t rows,
                                     std::span<std::byte> out) const {
  HEARTH_CHECK(row_begin <= row_count() && rows <= row_count() - row_begin);
  HEARTH_CHECK(out.size() == rows * row_bytes_);
  return file_.ReadAt(rows_offset_bytes_ + row_begin * row_bytes_, out);
}

absl::Status NgramFile::LoadWhole() {
  if (!whole_.empty()) return absl::OkStatus();
  std::vector<std::byte> rows(row_count() * row_bytes_);
  for (uint64_t chunk = 0; chunk < directory_.crcs.size(); ++chunk) {
    const uint64_t begin = chunk * kNgramRowsPerChunk;
    const uint64_t count = std::min<uint64_t>(kNgramRowsPerChunk, row_count() - begin);
    const auto part = std::span(rows).subspan(begin * row_bytes_, count * row_bytes_);
    HEARTH_RETURN_IF_ERROR(ReadRowBytes(begin, count, part));
    if (const uint32_t crc = Crc32c(part); crc != directory_.crcs[chunk]) {
      return absl::DataLossError(absl::StrCat(file_.path(), ": rows ", begin, " to ",
                                              begin + count - 1, ": checksum ", absl::Hex(crc),
                                              ", expected ", absl::Hex(directory_.crcs[chunk])));
    }
  }
  whole_ = std::move(rows);
  return absl::OkStatus();
}

}  // namespace hearth
