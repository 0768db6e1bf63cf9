#include "pack/writer/hashed_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

HashedFile::HashedFile(SequentialFile file, std::string name)
    : file_(std::move(file)), name_(std::move(name)) {}

absl::StatusOr<HashedFile> HashedFile::Create(const std::string& dir, const std::string& name) {
  HEARTH_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Create(JoinPath(dir, name)));
  return HashedFile(std::move(file), name);
}

absl::Status HashedFile::Append(std::span<const std::byte> data) {
  hasher_.Update(data);
  return file_.Append(data);
}

absl::Status HashedFile::PadTo(uint64_t offset_bytes) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  HEARTH_CHECK(offset_bytes >= file_.bytes());
  while (file_.bytes() < offset_bytes) {
    const uint64_t n = std::min<uint64_t>(kZeros.size(), offset_bytes - file_.bytes());
    HEARTH_RETURN_IF_ERROR(Append(std::span(kZeros).first(n)));
  }
  return absl::OkStatus();
}

absl::Status HashedFile::AppendHole(uint64_t count_bytes) {
  static constexpr std::array<std::byte, 65536> kZeros = {};
  for (uint64_t left = count_bytes; left > 0;) {
    const uint64_t n = std::min<uint64_t>(kZeros.size(), left);
    hasher_.Update(std::span(kZeros).first(n));
    left -= n;
  }
  return file_.AppendHole(count_bytes);
}

absl::StatusOr<PackFile> HashedFile::Finish() {
  HEARTH_RETURN_IF_ERROR(file_.Finish());
  return PackFile{.name = name_, .bytes = file_.bytes(), .xxh3_128 = hasher_.HexDigest()};
}

}  // namespace hearth
