// A folder of a program's own that is gone when the program is done with it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace hearth::cli {

class ScratchFolder {
 public:
  // Makes "<parent>/<name>-XXXXXX". NotFound or PermissionDenied name the parent.
  static absl::StatusOr<ScratchFolder> Create(const std::string& parent, const std::string& name);
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~ScratchFolder();  // removes it with all that is in it
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace hearth::cli
