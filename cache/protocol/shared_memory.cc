#include "cache/protocol/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/huge_pages.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr mode_t kReadOnlyMode = 0400;  // so that a descriptor cannot be opened anew for writing

absl::StatusOr<UniqueFd> OpenForReading(int fd, const std::string& name) {
  if (::fchmod(fd, kReadOnlyMode) != 0) return ErrnoStatus(errno, name);
  UniqueFd read_only(::open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.valid()) return ErrnoStatus(errno, absl::StrCat(name, ": opening for reading"));
  return read_only;
}

// Advice: shared memory comes in huge pages where the system's shmem_enabled is "advise" or more.
void AskForHugePages(const FileMapping& mapping) {
  if (mapping.data().size() < kHugePageBytes) return;
  ::madvise(mapping.data().data(), mapping.data().size(), MADV_HUGEPAGE);
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, uint64_t bytes,
                                                  SharedWriting writing) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat(name, ": memfd_create"));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, absl::StrCat(name, ": ", FormatBytes(bytes)));
  }
  absl::StatusOr<FileMapping> mapping = FileMapping::Map(fd.get(), bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return Annotate(mapping.status(), name);
  AskForHugePages(*mapping);
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
                    (writing == SharedWriting::kNobody ? F_SEAL_FUTURE_WRITE : 0);
  if (::fcntl(fd.get(), F_ADD_SEALS, seals) != 0) {
    return ErrnoStatus(errno, absl::StrCat(name, ": sealing needs Linux 5.1"));
  }
  UniqueFd shared(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!shared.valid()) return ErrnoStatus(errno, name);
  if (writing != SharedWriting::kEverybody) {
    HEARTH_ASSIGN_OR_RETURN(shared, OpenForReading(fd.get(), name));
  }
  return SharedMemory(std::move(fd), std::move(shared), *std::move(mapping));
}

absl::StatusOr<FileMapping> MapShared(int fd, uint64_t bytes, MapAccess access,
                                      const std::string& what) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, what);
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the daemon announced ", bytes, " bytes and passed ", info.st_size));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": its length is not sealed: not memory of hearthd"));
  }
  absl::StatusOr<FileMapping> mapping = FileMapping::Map(fd, bytes, access);
  if (!mapping.ok()) return Annotate(mapping.status(), what);
  AskForHugePages(*mapping);
  return mapping;
}

}  // namespace hearth
