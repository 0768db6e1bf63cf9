// The directory that a pack is built in: a sibling of the target that takes the target's name only
// when it is complete. Until then it has no manifest, so nothing that a build leaves behind opens
// as a pack.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/manifest.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

enum class IfExists { kRefuse, kReplacePack };

class PackDirectory {
 public:
  // Makes "<target>.building". What an interrupted build left there is removed; a build that still
  // runs there is FailedPrecondition. An existing target is AlreadyExists unless it is an empty
  // directory, or a pack and `if_exists` allows to replace it.
  static absl::StatusOr<PackDirectory> Create(const std::string& target, IfExists if_exists);
  PackDirectory(PackDirectory&& other) noexcept;
  PackDirectory& operator=(PackDirectory&&) = delete;
  ~PackDirectory();  // removes the directory unless it was committed

  const std::string& path() const { return path_; }  // where to write

  // ResourceExhausted, with both numbers, when the disk has less room than `bytes` for this user.
  absl::Status CheckRoom(uint64_t bytes) const;

  // Writes manifest.json, makes everything durable and gives the directory its name. A replaced
  // pack is removed after the new one is in place.
  absl::Status Commit(const Manifest& manifest);

 private:
  PackDirectory(std::string target, std::string path, UniqueFd lock);
  std::string target_;
  std::string path_;
  UniqueFd lock_;  // held for as long as the build runs
  bool committed_ = false;
};

}  // namespace hearth
