#include "pack/writer/pack_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr std::string_view kManifestName = "manifest.json";
constexpr std::string_view kManifestStart = "{\n  \"format\": \"hearth-pack\"";
constexpr std::array<std::string_view, 9> kPackNames = {"manifest.json",
                                                        "dense.bin",
                                                        "experts.bin",
                                                        "ngram.bin",
                                                        "mtp.bin",
                                                        "tokenizer.json",
                                                        "tokenizer_config.json",
                                                        "chat_template.jinja",
                                                        "generation_config.json"};

// The names in a directory; NotFound when there is none.
absl::StatusOr<std::vector<std::string>> ListNames(const std::string& dir) {
  std::error_code error;
  std::filesystem::directory_iterator it(dir, error);
  std::vector<std::string> names;
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), dir);
  std::sort(names.begin(), names.end());
  return names;
}

// Removes a directory of which every name is one that a build makes; refuses to touch anything
// else.
absl::Status RemovePackFiles(const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames(dir));
  for (const std::string& name : names) {
    if (std::find(kPackNames.begin(), kPackNames.end(), name) == kPackNames.end()) {
      return absl::FailedPreconditionError(absl::StrCat(
          dir, ": holds ", name, ", which no build makes: move it away, or remove the directory"));
    }
  }
  for (const std::string& name : names) {
    const std::string path = JoinPath(dir, name);
    if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, path);
  }
  if (::rmdir(dir.c_str()) != 0) return ErrnoStatus(errno, dir);
  return absl::OkStatus();
}

// Whether the manifest begins as one of ours, whatever state the pack is in.
bool LooksLikePack(const std::string& dir) {
  const auto file = RandomAccessFile::Open(JoinPath(dir, kManifestName));
  if (!file.ok() || file->bytes() < kManifestStart.size()) return false;
  std::string start(kManifestStart.size(), '\0');
  return file->ReadAt(0, std::as_writable_bytes(std::span(start))).ok() && start == kManifestStart;
}

absl::Status CheckTarget(const std::string& target, IfExists if_exists) {
  if (!FileExists(target)) return absl::OkStatus();
  const auto names = ListNames(target);
  if (!names.ok()) {
    return absl::AlreadyExistsError(absl::StrCat(target, ": exists and is not a directory"));
  }
  if (names->empty()) return absl::OkStatus();
  if (!LooksLikePack(target)) {
    return absl::AlreadyExistsError(
        absl::StrCat(target, ": exists and is not a pack; nothing of it is replaced"));
  }
  if (if_exists == IfExists::kRefuse) {
    return absl::AlreadyExistsError(
        absl::StrCat(target, ": a pack is there already; --force replaces it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> LockDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, path);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another build is writing here; wait for it or choose another --out"));
  }
  return fd;
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status WriteManifest(const std::string& dir, const Manifest& manifest) {
  const std::string text = manifest.ToJson();
  HEARTH_ASSIGN_OR_RETURN(SequentialFile file,
                          SequentialFile::Create(JoinPath(dir, kManifestName)));
  HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
  return file.Finish();
}

}  // namespace

PackDirectory::PackDirectory(std::string target, std::string path, UniqueFd lock)
    : target_(std::move(target)), path_(std::move(path)), lock_(std::move(lock)) {}

PackDirectory::PackDirectory(PackDirectory&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::move(other.path_)),
      lock_(std::move(other.lock_)),
      committed_(std::exchange(other.committed_, true)) {}

PackDirectory::~PackDirectory() {
  if (!committed_) (void)RemovePackFiles(path_);  // best effort: the next build tries again
}

absl::StatusOr<PackDirectory> PackDirectory::Create(const std::string& target, IfExists if_exists) {
  const std::string clean = WithoutTrailingSlashes(target);
  if (clean.empty()) return absl::InvalidArgumentError("the name of the pack directory is empty");
  HEARTH_RETURN_IF_ERROR(CheckTarget(clean, if_exists));
  const std::string path = clean + ".building";
  if (FileExists(path)) {
    HEARTH_ASSIGN_OR_RETURN(const UniqueFd stale, LockDirectory(path));
    HEARTH_RETURN_IF_ERROR(RemovePackFiles(path));
  }
  if (::mkdir(path.c_str(), 0755) != 0) return ErrnoStatus(errno, path);
  HEARTH_ASSIGN_OR_RETURN(UniqueFd lock, LockDirectory(path));
  return PackDirectory(clean, path, std::move(lock));
}

absl::Status PackDirectory::CheckRoom(uint64_t bytes) const {
  struct statvfs disk;
  if (::statvfs(path_.c_str(), &disk) != 0) return ErrnoStatus(errno, path_);
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (bytes <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(target_, ": the pack takes ", FormatBytes(bytes),
                                                   ", the disk has ", FormatBytes(free_bytes),
                                                   " free: make room, or choose another place or a "
                                                   "smaller pack"));
}

absl::Status PackDirectory::Commit(const Manifest& manifest) {
  HEARTH_CHECK(!committed_);
  HEARTH_RETURN_IF_ERROR(WriteManifest(path_, manifest));
  HEARTH_RETURN_IF_ERROR(FsyncDirectory(path_));
  const std::string parent = ParentOf(target_);
  const bool replaces = LooksLikePack(target_);
  if (!replaces) {
    if (::rename(path_.c_str(), target_.c_str()) != 0) return ErrnoStatus(errno, target_);
    committed_ = true;
    return FsyncDirectory(parent);
  }
  // The old pack and the new one change names in one step, so that there is always one to open.
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    return ErrnoStatus(errno, absl::StrCat(target_, ": replacing the pack"));
  }
  committed_ = true;
  HEARTH_RETURN_IF_ERROR(FsyncDirectory(parent));
  return RemovePackFiles(path_);
}

}  // namespace hearth
