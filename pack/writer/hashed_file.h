// A file written once from front to back and hashed on the way: what a pack's manifest lists.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/content_hash.h"
#include "pack/format/manifest.h"
#include "runtime/base/file.h"

namespace hearth {

class HashedFile {
 public:
  static absl::StatusOr<HashedFile> Create(const std::string& dir, const std::string& name);

  absl::Status Append(std::span<const std::byte> data);
  absl::Status PadTo(uint64_t offset_bytes);      // zeros up to an offset that is not behind
  absl::Status AppendHole(uint64_t count_bytes);  // zeros that take no room; something must follow
  // Makes the file durable and returns its entry in the manifest.
  absl::StatusOr<PackFile> Finish();
  uint64_t bytes() const { return file_.bytes(); }

 private:
  HashedFile(SequentialFile file, std::string name);
  SequentialFile file_;
  ContentHasher hasher_;
  std::string name_;
};

}  // namespace hearth
