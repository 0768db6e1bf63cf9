// Opens one of a pack's .bin files up to and including its directory. For the readers and the
// verifier.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/format/container.h"
#include "runtime/base/file.h"

namespace hearth {

struct OpenedContainer {
  RandomAccessFile file;
  FileHeader header;                 // checked against the file's size
  std::vector<std::byte> directory;  // raw, its checksum not yet checked
};

absl::StatusOr<OpenedContainer> OpenContainer(const std::string& path, ContainerKind kind);

}  // namespace hearth
