#include "pack/format/container.h"

#include <cstring>

#include "absl/strings/str_cat.h"

#include "runtime/base/crc32c.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

uint32_t HeaderCrc(const FileHeader& header) {
  return Crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, header_crc32c)));
}

}  // namespace

const char* ContainerKindName(ContainerKind kind) {
  switch (kind) {
    case ContainerKind::kTensors:
      return "tensor file";
    case ContainerKind::kExperts:
      return "expert file";
    case ContainerKind::kNgram:
      return "n-gram file";
  }
  return "unknown file";
}

FileHeader SealHeader(FileHeader header) {
  header.header_crc32c = HeaderCrc(header);
  return header;
}

absl::StatusOr<FileHeader> DecodeHeader(std::span<const std::byte, sizeof(FileHeader)> bytes,
                                        ContainerKind kind, uint64_t file_bytes,
                                        const std::string& path) {
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kContainerMagic) {
    return absl::DataLossError(
        absl::StrCat(path, ": header: not a Hearth pack file (wrong magic)"));
  }
  if (header.version != kContainerVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": header: format version ",
                                                      header.version, ", this build reads ",
                                                      kContainerVersion));
  }
  if (const uint32_t crc = HeaderCrc(header); crc != header.header_crc32c) {
    return absl::DataLossError(absl::StrCat(path, ": header: checksum ", absl::Hex(crc),
                                            ", expected ", absl::Hex(header.header_crc32c)));
  }
  if (header.kind != static_cast<uint32_t>(kind)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": header: kind ", header.kind,
                                                   ", expected ", static_cast<uint32_t>(kind), " (",
                                                   ContainerKindName(kind), ")"));
  }
  if (header.file_bytes != file_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected ", header.file_bytes, " bytes, found ", file_bytes));
  }
  const bool ordered = header.data_offset_bytes >= sizeof(FileHeader) &&
                       header.data_offset_bytes <= header.directory_offset_bytes &&
                       header.directory_offset_bytes <= file_bytes &&
                       header.directory_bytes == file_bytes - header.directory_offset_bytes &&
                       header.directory_offset_bytes % kTensorAlignBytes == 0;
  if (!ordered || header.reserved0 != 0 || header.reserved1 != 0) {
    return absl::DataLossError(absl::StrCat(path, ": header: data at ", header.data_offset_bytes,
                                            ", directory of ", header.directory_bytes, " bytes at ",
                                            header.directory_offset_bytes, " do not fit ",
                                            file_bytes, " bytes"));
  }
  if (header.directory_bytes > kDirectoryBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": header: directory of ",
                                                     header.directory_bytes, " bytes, at most ",
                                                     kDirectoryBytesMax, " expected"));
  }
  return header;
}

}  // namespace hearth
