#include "runtime/base/replace_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <span>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status NotSaved(const std::string& path, const absl::Status& why) {
  return Annotate(why, absl::StrCat(path, ": cannot be saved in folder ", FolderOf(path)));
}

}  // namespace

absl::Status CheckReplaceable(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is there and not a regular file"));
  }
  if (::access(FolderOf(path).c_str(), W_OK | X_OK) != 0) {
    return NotSaved(path, ErrnoStatus(errno, "folder"));
  }
  return absl::OkStatus();
}

absl::Status ReplaceFile(const std::string& path, std::string_view text) {
  HEARTH_RETURN_IF_ERROR(CheckReplaceable(path));
  const std::string partial = absl::StrCat(path, ".partial-", ::getpid());
  const auto save = [&]() -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Create(partial));
    HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
    HEARTH_RETURN_IF_ERROR(file.Finish());
    if (::rename(partial.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, partial);
    return FsyncDirectory(FolderOf(path));
  };
  const absl::Status status = save();
  if (status.ok()) return status;
  ::unlink(partial.c_str());
  return NotSaved(path, status);
}

}  // namespace hearth
