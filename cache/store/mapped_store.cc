#include "cache/store/mapped_store.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/blob_check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; the C library is older than the kernel may be
#endif

namespace hearth {
namespace {

constexpr uint32_t kAsksMax = 1u << 14;  // as many as wait for a RAM tier of any kind
constexpr uint32_t kHintsMax = 256;
constexpr uint32_t kThreadsMax = 64;
constexpr uint64_t kSectorBytes = 512;  // what ru_inblock counts
constexpr uint64_t kBounceBytes = 256_KiB;

struct ThreadReads {
  uint64_t fault_count = 0;
  uint64_t bytes = 0;
};
ThreadReads ReadsOfThisThread() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return {static_cast<uint64_t>(usage.ru_majflt),
          static_cast<uint64_t>(usage.ru_inblock) * kSectorBytes};
}

uint64_t EndOfExperts(const ExpertFile& file) {
  const ExpertKey last = {LayerId(file.layer_count() - 1), ExpertId(file.expert_count() - 1)};
  return file.offset_bytes(last) + file.layout(last.layer).stride_bytes();
}

}  // namespace

bool MappedStore::AskRing::Push(const Ask& ask) {
  if (count == entries.size()) return false;
  entries[(begin + count++) % entries.size()] = ask;
  return true;
}

MappedStore::Ask MappedStore::AskRing::Pop() {
  const Ask ask = entries[begin];
  begin = (begin + 1) % static_cast<uint32_t>(entries.size());
  --count;
  return ask;
}

MappedStore::MappedStore(const ExpertFile& file, FileMapping mapping, Clock& clock)
    : file_(file),
      clock_(clock),
      mapping_(std::move(mapping)),
      page_bytes_(static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))),
      checked_(size_t{file.layer_count()} * file.expert_count()) {
  asks_.entries.resize(kAsksMax);
  hints_.entries.resize(kHintsMax);
}

absl::StatusOr<std::unique_ptr<MappedStore>> MappedStore::Create(const ExpertFile& file,
                                                                 const MappedStoreOptions& options,
                                                                 Clock& clock) {
  if (options.thread_count < 1 || options.thread_count > kThreadsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("thread_count ", options.thread_count, ": 1 to ", kThreadsMax, " expected"));
  }
  const uint64_t bytes = EndOfExperts(file);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(file.file().path()));
  if (file_bytes < bytes) {
    return absl::OutOfRangeError(absl::StrCat(file.file().path(), ": ", file_bytes,
                                              " bytes, its experts end at ", bytes,
                                              "; the pack was cut short, build or copy it again"));
  }
  HEARTH_ASSIGN_OR_RETURN(FileMapping mapping,
                          FileMapping::Map(file.file().fd(), bytes, MapAccess::kRead));
  // The kernel's usual read-ahead: experts are long runs of pages.
  ::madvise(mapping.data().data(), mapping.data().size(), MADV_NORMAL);
  std::unique_ptr<MappedStore> store(new MappedStore(file, std::move(mapping), clock));
  if (!options.available.source.empty() && bytes > options.available.available_bytes) {
    store->notes_.push_back(absl::StrCat(
        "the experts take ", FormatBytes(bytes), ", but ", options.available.source, " leaves ",
        FormatBytes(options.available.available_bytes),
        " for the page cache: pages will be read again and again; --ram-budget reads less"));
  }
  for (uint32_t i = 0; i < options.thread_count; ++i) {
    store->threads_.emplace_back([s = store.get()] { s->Work(); });
  }
  return store;
}

MappedStore::~MappedStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  while (asks_.count > 0) {
    const Ask ask = asks_.Pop();
    ask.sink->OnArrival(ask.index, absl::CancelledError("the mapped experts are closing"));
  }
}

std::span<std::byte> MappedStore::Blob(ExpertKey key) const {
  return mapping_.data().subspan(file_.offset_bytes(key), file_.layout(key.layer).blob_bytes());
}

std::span<std::byte> MappedStore::Pages(ExpertKey key) const {
  const uint64_t offset_bytes = file_.offset_bytes(key);
  const uint64_t begin = offset_bytes / page_bytes_ * page_bytes_;
  const uint64_t end =
      std::min<uint64_t>(AlignUp(offset_bytes + file_.layout(key.layer).blob_bytes(), page_bytes_),
                         mapping_.data().size());
  return mapping_.data().subspan(begin, end - begin);
}

// Every page of the expert is in the page cache and mapped, or an error says why not.
absl::Status MappedStore::Populate(ExpertKey key) const {
  const std::span<std::byte> pages = Pages(key);
  const auto populate = [pages] {
    int error;
    do {
      error = ::madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0 ? 0 : errno;
    } while (error == EINTR || error == EAGAIN);
    return error;
  };
  const int error = populate();
  if (error == 0) return absl::OkStatus();
  // EFAULT: a page cannot be read, and a plain read tells why. EINVAL: the kernel is too old, and a
  // plain read brings the pages in as well.
  if (error == EFAULT || error == EINVAL) {
    HEARTH_RETURN_IF_ERROR(ReadThrough(key));
    if (error == EINVAL || populate() == 0) return absl::OkStatus();
  }
  return ErrnoStatus(error, "bringing its pages in");
}

absl::Status MappedStore::ReadThrough(ExpertKey key) const {
  std::vector<std::byte> bounce(kBounceBytes);
  const uint64_t blob_bytes = file_.layout(key.layer).blob_bytes();
  for (uint64_t at = 0; at < blob_bytes; at += kBounceBytes) {
    const uint64_t bytes = std::min(kBounceBytes, blob_bytes - at);
    const absl::Status status =
        file_.file().ReadAt(file_.offset_bytes(key) + at, std::span(bounce).first(bytes));
    HEARTH_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status MappedStore::Check(ExpertKey key) {
  const size_t index = size_t{key.layer.value} * file_.expert_count() + key.expert.value;
  {
    const std::lock_guard lock(mutex_);
    if (checked_[index] != 0) return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(CheckBlob(file_, key, Blob(key)));
  const std::lock_guard lock(mutex_);
  checked_[index] = 1;
  return absl::OkStatus();
}

absl::Status MappedStore::BringIn(ExpertKey key) {
  if (key.layer.value >= file_.layer_count() || key.expert.value >= file_.expert_count()) {
    return absl::NotFoundError(absl::StrCat(file_.file().path(), ": no expert ", key.expert.value,
                                            " in layer ", key.layer.value));
  }
  {
    const std::lock_guard lock(mutex_);
    if (busy_count_++ == 0) busy_since_ns_ = clock_.NowNs();
  }
  const ThreadReads before = ReadsOfThisThread();
  absl::Status status = Populate(key);
  const ThreadReads after = ReadsOfThisThread();
  {
    const std::lock_guard lock(mutex_);
    if (--busy_count_ == 0) stats_.read_busy_ns += clock_.NowNs() - busy_since_ns_;
    stats_.major_fault_count += after.fault_count - before.fault_count;
    stats_.read_bytes += after.bytes - before.bytes;
    if (after.bytes != before.bytes || after.fault_count != before.fault_count) {
      ++stats_.read_count;
    }
  }
  if (status.ok()) status = Check(key);
  return status.ok() ? status : ExpertError(file_, key, status);
}

absl::StatusOr<ExpertLease> MappedStore::Acquire(ExpertKey key) {
  HEARTH_RETURN_IF_ERROR(BringIn(key));
  return MakeLease(0, Blob(key));
}

std::optional<ExpertLease> MappedStore::TryAcquire(ExpertKey key) {
  if (key.layer.value >= file_.layer_count() || key.expert.value >= file_.expert_count()) {
    return std::nullopt;
  }
  {
    const std::lock_guard lock(mutex_);
    const size_t index = size_t{key.layer.value} * file_.expert_count() + key.expert.value;
    if (checked_[index] == 0) return std::nullopt;
  }
  const std::span<std::byte> pages = Pages(key);
  const uint64_t last = (pages.size() - 1) / page_bytes_;
  for (const uint64_t page : {uint64_t{0}, last / 2, last}) {
    unsigned char resident = 0;
    if (::mincore(pages.data() + page * page_bytes_, 1, &resident) != 0 || (resident & 1) == 0) {
      return std::nullopt;
    }
  }
  return MakeLease(0, Blob(key));
}

void MappedStore::Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) {
  for (uint32_t i = 0; i < experts.size(); ++i) {
    const ExpertKey key = {layer, experts[i]};
    bool taken;
    {
      const std::lock_guard lock(mutex_);
      taken = asks_.Push({&sink, i, key});
    }
    if (!taken) {
      sink.OnArrival(i, absl::ResourceExhaustedError(
                            absl::StrCat(kAsksMax, " asks for experts wait already")));
    }
  }
  changed_.notify_all();
}

void MappedStore::LookAhead(LayerId layer, std::span<const ExpertId> experts) {
  if (layer.value >= file_.layer_count()) return;
  {
    const std::lock_guard lock(mutex_);
    hints_.count = 0;  // of a layer that is over
    for (const ExpertId expert : experts) {
      if (expert.value < file_.expert_count()) hints_.Push({nullptr, 0, {layer, expert}});
    }
  }
  changed_.notify_one();
}

void MappedStore::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto may_hint = [this] { return hints_.count > 0 && busy_count_ == 0; };
    changed_.wait(lock, [&] { return stopping_ || asks_.count > 0 || may_hint(); });
    if (stopping_) return;
    if (asks_.count == 0) {
      // Read-ahead that nobody waits for, while there is nothing else to read.
      const std::span<std::byte> pages = Pages(hints_.Pop().key);
      lock.unlock();
      ::madvise(pages.data(), pages.size(), MADV_WILLNEED);  // advice: failure costs time only
      lock.lock();
      continue;
    }
    const Ask ask = asks_.Pop();
    lock.unlock();
    ask.sink->OnArrival(ask.index, Acquire(ask.key));
    lock.lock();
  }
}

StoreStats MappedStore::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.capacity_bytes = mapping_.data().size();
  return stats;
}

}  // namespace hearth
