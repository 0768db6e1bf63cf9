// The store's thread: files are written and evicted here, one after the other.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/engine/prefix_store.h"

namespace hearth {
namespace {

// All of an image's tokens and cuts, as a query that ends with its last one.
struct WholeChain {
  explicit WholeChain(const PrefixImage& image) : spans(ChainOf(*image.span)) {
    for (const PrefixSpan* span : spans) {
      tokens.insert(tokens.end(), span->tokens.begin(), span->tokens.end());
      cuts.insert(cuts.end(), span->cuts.begin(), span->cuts.end());
      cut_ends.push_back(cuts.size());
    }
  }
  // Up to the end of spans[i].
  PrefixQuery UpTo(size_t i, std::string_view salt) const {
    return {.tokens = std::span(tokens).first(spans[i]->range.end),
            .cuts = std::span(cuts).first(cut_ends[i]),
            .salt = salt};
  }
  std::vector<const PrefixSpan*> spans;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> cuts;
  std::vector<size_t> cut_ends;
};

}  // namespace

void PrefixStore::WriteLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    lock.unlock();
    const absl::Status status = Write(job);
    job = {};  // lets the image go outside the lock
    if (!status.ok()) Log(ToStd(absl::StrCat("image not written: ", status.message())));
    lock.lock();
    if (!status.ok()) ++stats_.not_written;
    writing_ = false;
    idle_.notify_all();
  }
}

absl::Status PrefixStore::Write(const Job& job) {
  if (job.image == nullptr) {
    // For the next start; a file that is gone has no use to note.
    (void)::utimensat(AT_FDCWD, PathOf(job.used_number).c_str(), nullptr, 0);
    return absl::OkStatus();
  }
  const PrefixImage& image = *job.image;
  const WholeChain chain(image);
  PrefixFileHeader header{.binding = options_.binding, .draft_count = image.draft_count};
  header.salt = job.salt;
  size_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = chain.spans.size(); i-- > 0 && first == 0;) {
      const PrefixRecordPtr there =
          index_.At(chain.UpTo(i, job.salt), chain.spans[i]->range.draft_end);
      if (there == nullptr) continue;
      if (i + 1 == chain.spans.size()) {
        if (there->header.draft_count >= image.draft_count) {
          index_.Touch(there->header.number);
          return absl::OkStatus();
        }
        continue;
      }
      header.parent_number = there->header.number;
      header.parent_seal = there->header.seal;
      first = i + 1;
    }
    header.number = index_.next_number();
  }
  header.fixed = {.bytes = image.fixed.data().size(), .xxh3 = PrefixPartHash(image.fixed.data())};
  for (size_t i = first; i < chain.spans.size(); ++i) {
    const PrefixSpan& s = *chain.spans[i];
    header.spans.push_back(
        {.range = s.range,
         .tokens = s.tokens,
         .cuts = s.cuts,
         .part = {.bytes = s.memory.data().size(), .xxh3 = PrefixPartHash(s.memory.data())}});
  }
  HEARTH_RETURN_IF_ERROR(WriteFile(image, header));
  const std::lock_guard lock(mutex_);
  const uint64_t number = header.number;
  absl::Status added = index_.Add(std::move(header));
  if (added.ok()) {
    ++stats_.written;
  } else {  // what it goes on from was found damaged meanwhile
    ::unlink(PathOf(number).c_str());
  }
  return added;
}

// The spans of the header are the image's last ones.
absl::Status PrefixStore::WriteFile(const PrefixImage& image, PrefixFileHeader& header) {
  const std::string text = EncodePrefixHeader(header);
  HEARTH_RETURN_IF_ERROR(MakeRoom(header.file_bytes, header.parent_number));
  const std::string path = PathOf(header.number);
  const std::string partial = absl::StrCat(path, ".partial");
  const auto pad = [](SequentialFile& file) {
    return file.AppendZeros(AlignUp(file.bytes(), kPrefixFileAlignBytes) - file.bytes());
  };
  const auto write = [&]() -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Create(partial));
    if (::chmod(partial.c_str(), 0600) != 0) return ErrnoStatus(errno, partial);
    HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
    HEARTH_RETURN_IF_ERROR(file.Append(image.fixed.data()));
    HEARTH_RETURN_IF_ERROR(pad(file));
    const std::vector<const PrefixSpan*> chain = ChainOf(*image.span);
    for (size_t i = chain.size() - header.spans.size(); i < chain.size(); ++i) {
      HEARTH_RETURN_IF_ERROR(file.Append(chain[i]->memory.data()));
      HEARTH_RETURN_IF_ERROR(pad(file));
    }
    HEARTH_RETURN_IF_ERROR(file.Finish());
    if (::rename(partial.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, partial);
    return FsyncDirectory(options_.dir);
  };
  const absl::Status status = write();
  if (!status.ok()) ::unlink(partial.c_str());
  return status;
}

// Removes files until `bytes` more are within the budget. The index forgets them first: look-ups do
// not wait for the file system.
absl::Status PrefixStore::MakeRoom(uint64_t bytes, uint64_t but_not) {
  std::vector<uint64_t> removed;
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = MakeRoomInIndex(bytes, but_not, removed);
    stats_.evictions += removed.size();
  }
  for (const uint64_t number : removed) ::unlink(PathOf(number).c_str());
  return status;
}

absl::Status PrefixStore::MakeRoomInIndex(uint64_t bytes, uint64_t but_not,
                                          std::vector<uint64_t>& removed) {
  while (bytes > options_.budget_bytes || index_.bytes() > options_.budget_bytes - bytes) {
    const uint64_t number = bytes > options_.budget_bytes ? 0 : index_.GoesFirst(but_not);
    if (number == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat(options_.dir, ": an image of ", FormatBytes(bytes), " has no room within ",
                       FormatBytes(options_.budget_bytes), " beside ", FormatBytes(index_.bytes()),
                       " that it goes on from"));
    }
    for (const uint64_t gone : index_.Remove(number)) removed.push_back(gone);
  }
  return absl::OkStatus();
}

}  // namespace hearth
