// Files as Hearth uses them: positioned reads that are complete or an error, read-only mappings,
// whole small files, and directories of output that appear under their final name only when
// complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/unique_handle.h"

namespace hearth {

// A regular file open for reading. ReadAt may be called from any number of threads at once.
class RandomAccessFile {
 public:
  static absl::StatusOr<RandomAccessFile> Open(const std::string& path);

  // Fills `into` from `offset_bytes`. A short file is OutOfRange with path, offset, wanted and got.
  absl::Status ReadAt(uint64_t offset_bytes, std::span<std::byte> into) const;

  uint64_t bytes() const { return bytes_; }  // at open
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

 private:
  RandomAccessFile(UniqueFd fd, std::string path, uint64_t bytes);
  UniqueFd fd_;
  std::string path_;
  uint64_t bytes_ = 0;
};

// A private anonymous mapping: zeroed, page-aligned, released on destruction. Blocks of 2 MiB and
// more start on a huge page and ask for more of them.
class AnonymousMapping {
 public:
  static absl::StatusOr<AnonymousMapping> Create(uint64_t bytes);
  AnonymousMapping(AnonymousMapping&& other) noexcept;
  AnonymousMapping& operator=(AnonymousMapping&& other) noexcept;
  ~AnonymousMapping();
  std::span<std::byte> data() const { return data_; }

 private:
  explicit AnonymousMapping(std::span<std::byte> data) : data_(data) {}
  std::span<std::byte> data_;
};

// A mapping of an open file, shared with whoever else maps it: what one writes the others see.
// Page-aligned, released on destruction; lives on when the descriptor is closed.
enum class MapAccess { kRead, kReadWrite };
class FileMapping {
 public:
  // The first `bytes` of the file, which must have as many: touching a page beyond its end kills
  // the process.
  static absl::StatusOr<FileMapping> Map(int fd, uint64_t bytes, MapAccess access);
  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();
  std::span<std::byte> data() const { return data_; }  // not to be written when mapped kRead

 private:
  explicit FileMapping(std::span<std::byte> data) : data_(data) {}
  std::span<std::byte> data_;
};

// A file written from front to back. Nothing is durable before Finish(), which flushes and fsyncs.
// The first error stays: every later call returns it, so that no Finish() succeeds over a hole.
class SequentialFile {
 public:
  static absl::StatusOr<SequentialFile> Create(const std::string& path);
  absl::Status Append(std::span<const std::byte> data);
  absl::Status AppendZeros(uint64_t count_bytes);
  // Zeros that take no room where the file system has holes. Something must follow.
  absl::Status AppendHole(uint64_t count_bytes);
  absl::Status Finish();
  uint64_t bytes() const { return bytes_; }  // appended so far
  const std::string& path() const { return path_; }

 private:
  SequentialFile(UniqueFd fd, std::string path);
  absl::Status Write(std::string_view data);
  absl::Status Flush();
  UniqueFd fd_;
  std::string path_;
  std::string buffer_;
  uint64_t bytes_ = 0;
  absl::Status status_;  // the first error, or that the file is finished
};

// Reads a whole file of at most `bytes_max`; a larger one is ResourceExhausted, naming both sizes.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t bytes_max);

absl::StatusOr<uint64_t> FileBytes(const std::string& path);
bool FileExists(const std::string& path);
absl::Status FsyncDirectory(const std::string& path);

// "dir/name", with one slash.
std::string JoinPath(std::string_view dir, std::string_view name);

}  // namespace hearth
