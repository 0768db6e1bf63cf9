#include "tools/hearth/scratch_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth::cli {

absl::StatusOr<ScratchFolder> ScratchFolder::Create(const std::string& parent,
                                                    const std::string& name) {
  std::string path = JoinPath(parent, name + "-XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("cannot make a folder in ", parent));
  }
  return ScratchFolder(std::move(path));
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;  // nobody is left to tell
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace hearth::cli
