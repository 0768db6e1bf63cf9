#include "runtime/engine/prefix_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr std::string_view kSuffix = ".prefix";
constexpr std::string_view kPartialSuffix = ".prefix.partial";
constexpr size_t kNumberDigits = 16;
constexpr size_t kUsesWaitingMax = 64;

// The number of a file named "<16 hex digits><suffix>"; 0: it is not one.
uint64_t NumberOf(std::string_view name, std::string_view suffix) {
  if (name.size() != kNumberDigits + suffix.size() || !name.ends_with(suffix)) return 0;
  uint64_t number = 0;
  const char* const end = name.data() + kNumberDigits;
  const auto [at, error] = std::from_chars(name.data(), end, number, 16);
  return error == std::errc() && at == end ? number : 0;
}

absl::StatusOr<UniqueFd> LockDirectory(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat(dir, ": directory of images"));
  }
  const std::string path = JoinPath(dir, "owner.lock");
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, path);
  return absl::FailedPreconditionError(
      absl::StrCat(dir, ": another server has this directory of images: give each one its own"));
}

struct FileAge {
  uint64_t number;
  int64_t modified_ns;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrefixStore>> PrefixStore::Open(PrefixStoreOptions options) {
  HEARTH_ASSIGN_OR_RETURN(UniqueFd lock, LockDirectory(options.dir));
  std::unique_ptr<PrefixStore> store(new PrefixStore(std::move(options), std::move(lock)));
  HEARTH_RETURN_IF_ERROR(store->LoadIndex());
  store->writer_ = std::thread([s = store.get()] { s->WriteLoop(); });
  return store;
}

PrefixStore::~PrefixStore() {
  if (!writer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  writer_.join();
}

std::string PrefixStore::PathOf(uint64_t number) const {
  return JoinPath(options_.dir,
                  ToStd(absl::StrCat(absl::Hex(number, absl::kZeroPad16),
                                     absl::string_view(kSuffix.data(), kSuffix.size()))));
}

void PrefixStore::Log(std::string_view text) const {
  if (options_.log) options_.log(text);
}

// Reads all headers, in the order of numbers, so that what goes on from a file comes after it; then
// puts them in the order of their last use.
absl::Status PrefixStore::LoadIndex() {
  std::vector<FileAge> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(options_.dir, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (NumberOf(name, kPartialSuffix) != 0) ::unlink(it->path().c_str());
    const uint64_t number = NumberOf(name, kSuffix);
    struct stat info;
    if (number == 0 || ::stat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    files.push_back({.number = number,
                     .modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat(options_.dir, ": directory of images"));
  std::sort(files.begin(), files.end(),
            [](const FileAge& a, const FileAge& b) { return a.number < b.number; });
  for (const FileAge& file : files) AddFile(file.number);
  std::sort(files.begin(), files.end(),
            [](const FileAge& a, const FileAge& b) { return a.modified_ns < b.modified_ns; });
  for (const FileAge& file : files) index_.Touch(file.number);
  stats_.damaged = 0;
  return MakeRoom(0, 0);
}

void PrefixStore::AddFile(uint64_t number) {
  const std::string path = PathOf(number);
  const absl::StatusOr<RandomAccessFile> file = RandomAccessFile::Open(path);
  if (!file.ok()) return Log(ToStd(file.status().message()));
  absl::StatusOr<PrefixFileHeader> header = ReadPrefixHeader(*file);
  absl::Status status = header.status();
  if (header.ok() && header->number != number) {
    status = absl::DataLossError(absl::StrCat(path, ": says it is image ", header->number));
  }
  if (status.ok()) {
    if (header->binding != options_.binding) return index_.AddForeign(number, header->file_bytes);
    status = index_.Add(*std::move(header));
  }
  if (status.ok()) return;
  Log(ToStd(absl::StrCat(status.message(), "; it is removed")));
  ::unlink(path.c_str());
}

PrefixRecordPtr PrefixStore::Find(const PrefixQuery& query) {
  const std::lock_guard lock(mutex_);
  return index_.Find(query);
}

absl::Status PrefixStore::ReadPart(const RandomAccessFile& file, const PrefixPart& part,
                                   std::span<std::byte> into) const {
  HEARTH_RETURN_IF_ERROR(file.ReadAt(part.offset_bytes, into));
  if (PrefixPartHash(into) == part.xxh3) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(file.path(), ": damaged: ", part.bytes, " bytes from ",
                                          part.offset_bytes, " have another hash"));
}

absl::StatusOr<std::shared_ptr<const PrefixImage>> PrefixStore::Read(
    const PrefixRecord& record, std::shared_ptr<const PrefixSpan> before,
    const std::shared_ptr<MemoryMeter>& meter) {
  uint64_t damaged_number = 0;
  absl::StatusOr<std::shared_ptr<const PrefixImage>> image =
      ReadParts(record, std::move(before), meter, &damaged_number);
  const std::lock_guard lock(mutex_);
  if (image.ok()) {
    ++stats_.read;
    index_.Touch(record.header.number);
    if (waiting_.size() < kUsesWaitingMax) {
      waiting_.push_back({.image = nullptr, .salt = {}, .used_number = record.header.number});
      work_.notify_one();
    }
    return image;
  }
  const absl::StatusCode code = image.status().code();
  if (code == absl::StatusCode::kNotFound) RemoveLocked(damaged_number);
  if (code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kOutOfRange) {
    Log(ToStd(absl::StrCat(image.status().message(), "; it is removed")));
    ++stats_.damaged;
    RemoveLocked(damaged_number);
    return absl::DataLossError(image.status().message());
  }
  return image;
}

// `damaged_number`: the file at hand when an error came.
absl::StatusOr<std::shared_ptr<const PrefixImage>> PrefixStore::ReadParts(
    const PrefixRecord& record, std::shared_ptr<const PrefixSpan> before,
    const std::shared_ptr<MemoryMeter>& meter, uint64_t* damaged_number) const {
  std::vector<const PrefixRecord*> records;
  for (const PrefixRecord* r = &record; r != nullptr; r = r->parent.get()) records.push_back(r);
  std::shared_ptr<const PrefixSpan> span = std::move(before);
  for (size_t i = records.size(); i-- > 0;) {
    const PrefixFileHeader& h = records[i]->header;
    const uint32_t at_hand = span == nullptr ? 0 : span->range.end;
    if (i != 0 && h.token_end() <= at_hand) continue;
    *damaged_number = h.number;
    HEARTH_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(PathOf(h.number)));
    for (const PrefixFileSpan& s : h.spans) {
      if (s.range.end <= at_hand) continue;
      HEARTH_ASSIGN_OR_RETURN(const std::shared_ptr<PrefixSpan> next,
                              MakeSpan({.before = span,
                                        .tokens = s.tokens,
                                        .cuts = s.cuts,
                                        .draft_end = s.range.draft_end,
                                        .memory_bytes = s.part.bytes},
                                       meter));
      HEARTH_RETURN_IF_ERROR(ReadPart(file, s.part, next->memory.data()));
      span = next;
    }
    if (i != 0) continue;
    HEARTH_ASSIGN_OR_RETURN(MeteredMemory fixed, MeteredMemory::Create(meter, h.fixed.bytes));
    HEARTH_RETURN_IF_ERROR(ReadPart(file, h.fixed, fixed.data()));
    return std::make_shared<PrefixImage>(
        PrefixImage{.span = span, .draft_count = h.draft_count, .fixed = std::move(fixed)});
  }
  return absl::InternalError("an image without records");
}

void PrefixStore::Put(std::shared_ptr<const PrefixImage> image, std::string_view salt) {
  const std::lock_guard lock(mutex_);
  const auto images = std::count_if(waiting_.begin(), waiting_.end(),
                                    [](const Job& job) { return job.image != nullptr; });
  if (static_cast<uint64_t>(images) >= options_.waiting_max) {
    ++stats_.not_written;
    return;
  }
  waiting_.push_back({.image = std::move(image), .salt = std::string(salt)});
  work_.notify_one();
}

void PrefixStore::Discard(uint64_t number, std::string_view why) {
  const std::lock_guard lock(mutex_);
  Log(ToStd(absl::StrCat(PathOf(number), ": ", ToAbsl(why), "; it is removed")));
  ++stats_.damaged;
  RemoveLocked(number);
}

void PrefixStore::RemoveLocked(uint64_t number) {
  for (const uint64_t removed : index_.Remove(number)) ::unlink(PathOf(removed).c_str());
}

void PrefixStore::Flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_.empty() && !writing_; });
}

PrefixStoreStats PrefixStore::stats() const {
  const std::lock_guard lock(mutex_);
  PrefixStoreStats stats = stats_;
  stats.images = index_.count();
  stats.bytes = index_.bytes();
  stats.budget_bytes = options_.budget_bytes;
  return stats;
}

}  // namespace hearth
