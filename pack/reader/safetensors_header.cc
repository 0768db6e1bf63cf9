// The header parser: a pure function of the file's front and length.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <simdjson.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "pack/reader/safetensors.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr uint64_t kLengthBytes = 8;
// The largest published header is near 50 MB (one tensor takes about 150 bytes).
constexpr uint64_t kHeaderBytesMax = 512_MiB;
constexpr size_t kQuotedNameMax = 160;
constexpr std::string_view kLfsPrefix = "version https://git-lfs";

struct DtypeName {
  std::string_view name;
  uint64_t bytes;
};
constexpr DtypeName kDtypes[] = {
    // in the order of SourceDtype
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},
};

std::optional<SourceDtype> FindDtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kDtypes); ++i) {
    if (kDtypes[i].name == name) return static_cast<SourceDtype>(i);
  }
  return std::nullopt;
}

// Names come from the file: escaped and cut, so that a message stays one line.
std::string Quoted(std::string_view name) {
  const bool cut = name.size() > kQuotedNameMax;
  return absl::StrCat("'", absl::CHexEscape(ToAbsl(name.substr(0, kQuotedNameMax))),
                      cut ? "..." : "", "'");
}

// Parses one header. Errors carry the path in front.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, uint64_t header_bytes, uint64_t file_bytes)
      : path_(path), header_bytes_(header_bytes), file_bytes_(file_bytes) {}

  absl::StatusOr<std::vector<SourceTensor>> Parse(std::string_view text);

 private:
  absl::Status Malformed(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": header: ", ToAbsl(what)));
  }
  absl::Status Json(simdjson::error_code error, std::string_view where) const {
    return Malformed(absl::StrCat(ToAbsl(where), ": ", simdjson::error_message(error)));
  }
  absl::Status ParseFields(ondemand::document& document);
  absl::Status ParseMetadata(ondemand::value value) const;
  absl::Status ParseTensor(std::string_view name, ondemand::value value);
  absl::Status ParseDtype(ondemand::value value, SourceTensor& tensor) const;
  absl::Status ParseShape(ondemand::value value, SourceTensor& tensor) const;
  absl::Status ParseOffsets(ondemand::value value, SourceTensor& tensor) const;
  absl::Status CheckSpan(const SourceTensor& tensor) const;
  absl::Status CheckNames() const;
  absl::Status CheckCover();

  const std::string& path_;
  const uint64_t header_bytes_;  // with the length field
  const uint64_t file_bytes_;
  std::vector<SourceTensor> tensors_;  // offsets relative to the data until CheckCover()
};

absl::StatusOr<std::vector<SourceTensor>> HeaderParser::Parse(std::string_view text) {
  const simdjson::padded_string padded(text);
  ondemand::parser parser;
  ondemand::document document;
  if (const auto error = parser.iterate(padded).get(document)) return Json(error, "bad JSON");
  HEARTH_RETURN_IF_ERROR(ParseFields(document));
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    return Malformed("text after the JSON object");
  }
  HEARTH_RETURN_IF_ERROR(CheckNames());
  HEARTH_RETURN_IF_ERROR(CheckCover());
  return std::move(tensors_);
}

absl::Status HeaderParser::ParseFields(ondemand::document& document) {
  ondemand::object object;
  if (const auto error = document.get_object().get(object)) return Json(error, "bad JSON");
  bool has_metadata = false;
  for (auto field : object) {
    std::string_view name;
    if (const auto error = field.unescaped_key().get(name)) return Json(error, "bad JSON");
    ondemand::value value;
    if (const auto error = field.value().get(value)) return Json(error, Quoted(name));
    if (name == "__metadata__") {
      if (std::exchange(has_metadata, true)) return Malformed("duplicate '__metadata__'");
      HEARTH_RETURN_IF_ERROR(ParseMetadata(value));
    } else {
      HEARTH_RETURN_IF_ERROR(ParseTensor(name, value));
    }
  }
  return absl::OkStatus();
}

absl::Status HeaderParser::ParseMetadata(ondemand::value value) const {
  ondemand::object object;
  if (const auto error = value.get_object().get(object)) return Json(error, "'__metadata__'");
  for (auto field : object) {
    std::string_view text;
    if (const auto error = field.unescaped_key().get(text)) return Json(error, "'__metadata__'");
    if (const auto error = field.value().get_string().get(text)) {
      return Json(error, "'__metadata__' value");
    }
  }
  return absl::OkStatus();
}

absl::Status HeaderParser::ParseTensor(std::string_view name, ondemand::value value) {
  SourceTensor tensor;
  tensor.name = name;
  ondemand::object object;
  if (const auto error = value.get_object().get(object)) return Json(error, Quoted(name));
  bool seen[3] = {};
  for (auto field : object) {
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) return Json(error, Quoted(name));
    const size_t which = key == "dtype" ? 0 : key == "shape" ? 1 : key == "data_offsets" ? 2 : 3;
    if (which == 3) return Malformed(absl::StrCat(Quoted(name), ": unknown key ", Quoted(key)));
    if (std::exchange(seen[which], true)) {
      return Malformed(absl::StrCat(Quoted(name), ": duplicate key ", Quoted(key)));
    }
    ondemand::value item;
    if (const auto error = field.value().get(item)) return Json(error, Quoted(name));
    HEARTH_RETURN_IF_ERROR(which == 0   ? ParseDtype(item, tensor)
                           : which == 1 ? ParseShape(item, tensor)
                                        : ParseOffsets(item, tensor));
  }
  for (size_t i = 0; i < 3; ++i) {
    constexpr const char* kKeys[] = {"dtype", "shape", "data_offsets"};
    if (!seen[i]) return Malformed(absl::StrCat(Quoted(name), ": no ", kKeys[i]));
  }
  HEARTH_RETURN_IF_ERROR(CheckSpan(tensor));
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status HeaderParser::ParseDtype(ondemand::value value, SourceTensor& tensor) const {
  std::string_view text;
  if (const auto error = value.get_string().get(text)) {
    return Json(error, absl::StrCat(Quoted(tensor.name), ": dtype"));
  }
  const std::optional<SourceDtype> dtype = FindDtype(text);
  if (!dtype.has_value()) {
    return Malformed(absl::StrCat(Quoted(tensor.name), ": unknown dtype ", Quoted(text)));
  }
  tensor.dtype = *dtype;
  return absl::OkStatus();
}

absl::Status HeaderParser::ParseShape(ondemand::value value, SourceTensor& tensor) const {
  ondemand::array array;
  const std::string where = absl::StrCat(Quoted(tensor.name), ": shape");
  if (const auto error = value.get_array().get(array)) return Json(error, where);
  for (auto item : array) {
    uint64_t dim = 0;
    if (const auto error = item.get_uint64().get(dim)) return Json(error, where);
    if (tensor.rank == kSourceRankMax) {
      return Malformed(absl::StrCat(where, " has more than ", kSourceRankMax, " dimensions"));
    }
    tensor.dims[tensor.rank++] = dim;
  }
  return absl::OkStatus();
}

absl::Status HeaderParser::ParseOffsets(ondemand::value value, SourceTensor& tensor) const {
  ondemand::array array;
  const std::string where = absl::StrCat(Quoted(tensor.name), ": data_offsets");
  if (const auto error = value.get_array().get(array)) return Json(error, where);
  uint64_t offsets[2] = {};
  size_t count = 0;
  for (auto item : array) {
    if (count == 2) return Malformed(absl::StrCat(where, " are not two numbers"));
    if (const auto error = item.get_uint64().get(offsets[count++])) return Json(error, where);
  }
  if (count != 2) return Malformed(absl::StrCat(where, " are not two numbers"));
  if (offsets[1] < offsets[0]) {
    return Malformed(absl::StrCat(where, " are reversed: [", offsets[0], ", ", offsets[1], "]"));
  }
  tensor.offset_bytes = offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  return absl::OkStatus();
}

absl::Status HeaderParser::CheckSpan(const SourceTensor& tensor) const {
  uint64_t expected = SourceDtypeBytes(tensor.dtype);
  for (const uint64_t dim : tensor.shape()) {
    if (__builtin_mul_overflow(expected, dim, &expected)) {
      return Malformed(absl::StrCat(Quoted(tensor.name), ": shape ", DescribeTensor(tensor),
                                    " overflows 64 bits"));
    }
  }
  if (expected == tensor.bytes) return absl::OkStatus();
  return Malformed(absl::StrCat(Quoted(tensor.name), ": ", DescribeTensor(tensor), " needs ",
                                expected, " bytes, data_offsets span ", tensor.bytes));
}

absl::Status HeaderParser::CheckNames() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const SourceTensor& tensor : tensors_) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return Malformed(absl::StrCat("duplicate tensor ", Quoted(*twice)));
}

// The spans, in order of offset, tile the data part of the file exactly.
absl::Status HeaderParser::CheckCover() {
  std::sort(tensors_.begin(), tensors_.end(), [](const SourceTensor& a, const SourceTensor& b) {
    return std::tie(a.offset_bytes, a.bytes, a.name) < std::tie(b.offset_bytes, b.bytes, b.name);
  });
  uint64_t end = 0;
  const SourceTensor* previous = nullptr;
  for (const SourceTensor& tensor : tensors_) {
    if (tensor.offset_bytes != end) {
      const bool overlap = tensor.offset_bytes < end;
      return Malformed(absl::StrCat(Quoted(tensor.name), " starts at ", tensor.offset_bytes, ", ",
                                    previous == nullptr ? "the data" : Quoted(previous->name),
                                    previous == nullptr ? " starts at " : " ends at ", end,
                                    overlap ? ": they overlap" : ": a gap"));
    }
    end += tensor.bytes;  // cannot overflow: both offsets were 64-bit numbers
    previous = &tensor;
  }
  const uint64_t data_bytes = file_bytes_ - header_bytes_;
  if (end > data_bytes) {
    return absl::DataLossError(absl::StrCat(
        path_, ": truncated: the header describes ", end, " bytes of data after ", header_bytes_,
        " bytes of header, expected a file of ",
        end <= UINT64_MAX - header_bytes_ ? absl::StrCat(header_bytes_ + end) : "over 2^64",
        " bytes, found ", file_bytes_));
  }
  if (end < data_bytes) {
    return absl::DataLossError(absl::StrCat(path_, ": expected a file of ", header_bytes_ + end,
                                            " bytes, found ", file_bytes_, ": ", data_bytes - end,
                                            " bytes belong to no tensor"));
  }
  for (SourceTensor& tensor : tensors_) tensor.offset_bytes += header_bytes_;
  return absl::OkStatus();
}

}  // namespace

const char* SourceDtypeName(SourceDtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)].name.data();  // literals end with NUL
}

uint64_t SourceDtypeBytes(SourceDtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bytes; }

std::string DescribeTensor(const SourceTensor& tensor) {
  std::string text = "[";
  for (const uint64_t dim : tensor.shape()) {
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", dim);
  }
  return absl::StrCat(text, "] ", SourceDtypeName(tensor.dtype));
}

absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::span<const std::byte> prefix,
                                                uint64_t file_bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  if (text.starts_with(kLfsPrefix)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": a Git LFS pointer of ", file_bytes,
                     " bytes, not the weights: fetch the file itself (git lfs pull)"));
  }
  if (file_bytes < kLengthBytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", file_bytes, " bytes, a safetensors file has at least ", kLengthBytes));
  }
  HEARTH_CHECK(prefix.size() >= kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), kLengthBytes);
  if (length > file_bytes - kLengthBytes) {
    return absl::DataLossError(absl::StrCat(path, ": header length ", length,
                                            " goes beyond the file of ", file_bytes, " bytes"));
  }
  if (length > kHeaderBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": header length ", length, ", accepted are up to ", kHeaderBytesMax));
  }
  if (length < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": header length ", length, ", the shortest header is {}"));
  }
  return kLengthBytes + length;
}

absl::StatusOr<std::vector<SourceTensor>> ParseSafetensors(std::span<const std::byte> front,
                                                           uint64_t file_bytes,
                                                           const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t header_bytes,
                          SafetensorsHeaderBytes(front, file_bytes, path));
  HEARTH_CHECK(front.size() >= header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(front.data()), header_bytes);
  return HeaderParser(path, header_bytes, file_bytes).Parse(text.substr(kLengthBytes));
}

}  // namespace hearth
