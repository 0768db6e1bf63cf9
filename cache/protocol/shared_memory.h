// Memory that the daemon makes and engines map: sealed memfds, passed as descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/file.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

// Who else may write.
enum class SharedWriting {
  kNobody,     // no writable mapping can be made any more, by anybody: F_SEAL_FUTURE_WRITE
  kGivesBack,  // only through the maker's descriptor, whose pages can be given back to the system;
               // the kernel refuses to give back pages of a file sealed against future writes
  kEverybody,
};

class SharedMemory {
 public:
  // Zeroed, mapped for reading and writing here; its length cannot change any more.
  // ResourceExhausted when the system has none. `name` shows in /proc.
  static absl::StatusOr<SharedMemory> Create(const std::string& name, uint64_t bytes,
                                             SharedWriting writing);
  std::span<std::byte> data() const { return mapping_.data(); }
  // What engines get: opened for reading only unless everybody may write.
  int shared_fd() const { return shared_fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, UniqueFd shared_fd, FileMapping mapping)
      : fd_(std::move(fd)), shared_fd_(std::move(shared_fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  UniqueFd shared_fd_;
  FileMapping mapping_;
};

// Maps what a peer passed: FailedPrecondition unless it has exactly `bytes` and its length is
// sealed, so that no access can fault. `what` names it in messages.
absl::StatusOr<FileMapping> MapShared(int fd, uint64_t bytes, MapAccess access,
                                      const std::string& what);

}  // namespace hearth
