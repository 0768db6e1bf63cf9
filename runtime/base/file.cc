#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/huge_pages.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kWriteBufferBytes = 1_MiB;

absl::Status WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, path);
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

void FdTraits::Close(Type fd) { ::close(fd); }

RandomAccessFile::RandomAccessFile(UniqueFd fd, std::string path, uint64_t bytes)
    : fd_(std::move(fd)), path_(std::move(path)), bytes_(bytes) {}

absl::StatusOr<RandomAccessFile> RandomAccessFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe returns at once, to be refused below.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  return RandomAccessFile(std::move(fd), path, static_cast<uint64_t>(info.st_size));
}

absl::Status RandomAccessFile::ReadAt(uint64_t offset_bytes, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(fd_.get(), into.data() + done, into.size() - done,
                              static_cast<off_t>(offset_bytes + done));
    if (n < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return ErrnoStatus(
          errno, absl::StrCat(path_, ": read of ", into.size(), " bytes at ", offset_bytes));
    }
    if (n == 0) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": read at ", offset_bytes, ": wanted ",
                                                into.size(), " bytes, got ", done,
                                                " (the file ends there)"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<AnonymousMapping> AnonymousMapping::Create(uint64_t bytes) {
  if (bytes == 0) return AnonymousMapping(std::span<std::byte>());
  // Large mappings start on a huge page: what is asked for beyond is given back.
  const uint64_t slack_bytes = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  if (bytes > UINT64_MAX - slack_bytes) return ErrnoStatus(ENOMEM, absl::StrCat("map ", bytes));
  void* p = ::mmap(nullptr, bytes + slack_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map ", FormatBytes(bytes)));
  auto* begin = static_cast<std::byte*>(p);
  if (slack_bytes != 0) {
    const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t head_bytes = AlignUp(reinterpret_cast<uintptr_t>(begin), kHugePageBytes) -
                                reinterpret_cast<uintptr_t>(p);
    std::byte* const end = begin + AlignUp(bytes + slack_bytes, page_bytes);
    if (head_bytes != 0) ::munmap(begin, head_bytes);
    begin += head_bytes;
    std::byte* const used_end = begin + AlignUp(bytes, page_bytes);
    if (used_end != end) ::munmap(used_end, static_cast<size_t>(end - used_end));
    ::madvise(begin, bytes, MADV_HUGEPAGE);  // advice: failure costs speed only
  }
  return AnonymousMapping(std::span(begin, bytes));
}

AnonymousMapping::AnonymousMapping(AnonymousMapping&& other) noexcept
    : data_(std::exchange(other.data_, {})) {}

AnonymousMapping& AnonymousMapping::operator=(AnonymousMapping&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

AnonymousMapping::~AnonymousMapping() {
  if (!data_.empty()) ::munmap(data_.data(), data_.size());
}

absl::StatusOr<FileMapping> FileMapping::Map(int fd, uint64_t bytes, MapAccess access) {
  if (bytes == 0) return FileMapping();
  const int protection = access == MapAccess::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* p = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map ", FormatBytes(bytes)));
  return FileMapping(std::span(static_cast<std::byte*>(p), bytes));
}

FileMapping::FileMapping(FileMapping&& other) noexcept : data_(std::exchange(other.data_, {})) {}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

FileMapping::~FileMapping() {
  if (!data_.empty()) ::munmap(data_.data(), data_.size());
}

SequentialFile::SequentialFile(UniqueFd fd, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)) {}

absl::StatusOr<SequentialFile> SequentialFile::Create(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, path);
  return SequentialFile(std::move(fd), path);
}

absl::Status SequentialFile::Append(std::span<const std::byte> data) {
  HEARTH_RETURN_IF_ERROR(status_);
  bytes_ += data.size();
  const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  if (buffer_.size() + text.size() <= kWriteBufferBytes) {
    buffer_.append(text);
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(Flush());
  if (text.size() >= kWriteBufferBytes) return Write(text);
  buffer_.append(text);
  return absl::OkStatus();
}

absl::Status SequentialFile::AppendZeros(uint64_t count_bytes) {
  static constexpr std::byte kZeros[4096] = {};
  while (count_bytes > 0) {
    const uint64_t n = std::min<uint64_t>(count_bytes, sizeof(kZeros));
    HEARTH_RETURN_IF_ERROR(Append(std::span(kZeros, n)));
    count_bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status SequentialFile::AppendHole(uint64_t count_bytes) {
  HEARTH_RETURN_IF_ERROR(Flush());
  if (::lseek(fd_.get(), static_cast<off_t>(count_bytes), SEEK_CUR) < 0) {
    status_ = ErrnoStatus(errno, absl::StrCat("cannot skip ", count_bytes, " bytes in ", path_));
    return status_;
  }
  bytes_ += count_bytes;
  return absl::OkStatus();
}

absl::Status SequentialFile::Write(std::string_view data) {
  HEARTH_RETURN_IF_ERROR(status_);
  status_ = WriteAll(fd_.get(), data, path_);
  return status_;
}

absl::Status SequentialFile::Flush() {
  const absl::Status status = Write(buffer_);
  buffer_.clear();
  return status;
}

absl::Status SequentialFile::Finish() {
  HEARTH_RETURN_IF_ERROR(Flush());
  if (::fsync(fd_.get()) != 0) {
    status_ = ErrnoStatus(errno, path_);
    return status_;
  }
  fd_ = UniqueFd();
  status_ = absl::FailedPreconditionError(absl::StrCat(path_, ": already finished"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t bytes_max) {
  HEARTH_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(path));
  if (file.bytes() > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": ", file.bytes(), " bytes, at most ", bytes_max, " expected"));
  }
  std::string text(file.bytes(), '\0');
  HEARTH_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::StatusOr<uint64_t> FileBytes(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  return static_cast<uint64_t>(info.st_size);
}

bool FileExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

absl::Status FsyncDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, path);
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, path);
  return absl::OkStatus();
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  std::string path(dir);
  if (!path.empty() && path.back() != '/') path += '/';
  path += name;
  return path;
}

}  // namespace hearth
