#include "pack/reader/container_reader.h"

#include <array>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<OpenedContainer> OpenContainer(const std::string& path, ContainerKind kind) {
  HEARTH_ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(path));
  std::array<std::byte, sizeof(FileHeader)> bytes;
  if (file.bytes() < bytes.size()) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected at least ", bytes.size(), " bytes, found ", file.bytes()));
  }
  HEARTH_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  HEARTH_ASSIGN_OR_RETURN(const FileHeader header, DecodeHeader(bytes, kind, file.bytes(), path));
  std::vector<std::byte> directory(header.directory_bytes);
  HEARTH_RETURN_IF_ERROR(file.ReadAt(header.directory_offset_bytes, directory));
  return OpenedContainer{std::move(file), header, std::move(directory)};
}

}  // namespace hearth
