// Images of sequences in a directory, so that a server that starts again finds the conversations of
// the one before. One file an image; whole or not there, whenever the process or the machine stops;
// bound to everything that the state's bits depend on; within a budget of bytes; one owner.
//
//   owner.lock            locked while a store is open
//   <16 hex digits>.prefix
//   <16 hex digits>.prefix.partial   being written; removed at the next start
//
// Files of the same tokens hold keys and values once: an image that goes on from another has only
// what came since. An image that nothing goes on from goes first. Files that are damaged are
// removed when that is noticed, at the latest when they are read; images of another model, build or
// machine are left alone until their room is needed. Other files are never touched.
//
// Index, tokens and cuts stay in memory: about 20 bytes for each token on disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/unique_handle.h"
#include "runtime/engine/prefix_file.h"
#include "runtime/engine/prefix_image.h"
#include "runtime/engine/prefix_index.h"
#include "runtime/engine/prefix_query.h"

namespace hearth {

struct PrefixStoreOptions {
  std::string dir;  // made if it is not there, for the owner's eyes only
  uint64_t budget_bytes = 0;
  PrefixBinding binding{};
  // Images that wait to be written at most; further ones are not written.
  uint32_t waiting_max = 4;
  // Told what was found damaged and what could not be written, on any thread.
  std::function<void(std::string_view)> log;
};

struct PrefixStoreStats {
  uint64_t images = 0;
  uint64_t bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t written = 0;
  uint64_t not_written = 0;  // too many waiting, no room, or an error
  uint64_t read = 0;
  uint64_t damaged = 0;
  uint64_t evictions = 0;
};

// Find and Read are for one thread, Put for that one too; writing is done behind them.
class PrefixStore {
 public:
  // FailedPrecondition when another process has the directory, the file system's error when it
  // cannot be used.
  static absl::StatusOr<std::unique_ptr<PrefixStore>> Open(PrefixStoreOptions options);
  // Writes what waits.
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // The image of the longest prefix that the prompt can go on from; null: none.
  PrefixRecordPtr Find(const PrefixQuery& query);
  // Reads and checks an image but its first spans, `before` (null: none), which are at hand.
  // DataLoss for a file that is damaged: it and what goes on from it are gone then. NotFound when
  // it has been evicted meanwhile.
  absl::StatusOr<std::shared_ptr<const PrefixImage>> Read(
      const PrefixRecord& record, std::shared_ptr<const PrefixSpan> before,
      const std::shared_ptr<MemoryMeter>& meter);
  // Has it written, unless it is there.
  void Put(std::shared_ptr<const PrefixImage> image, std::string_view salt);
  // What a caller found to be unusable: it and what goes on from it are removed.
  void Discard(uint64_t number, std::string_view why);

  // Returns when nothing waits to be written.
  void Flush();
  PrefixStoreStats stats() const;

 private:
  struct Job {
    std::shared_ptr<const PrefixImage> image;  // null: only a use to be noted
    std::string salt;
    uint64_t used_number = 0;
  };

  PrefixStore(PrefixStoreOptions options, UniqueFd lock)
      : options_(std::move(options)), lock_(std::move(lock)) {}
  absl::Status LoadIndex();
  void AddFile(uint64_t number);
  std::string PathOf(uint64_t number) const;
  void Log(std::string_view text) const;

  void WriteLoop();
  absl::Status Write(const Job& job);
  absl::Status WriteFile(const PrefixImage& image, PrefixFileHeader& header);
  absl::Status MakeRoom(uint64_t bytes, uint64_t but_not);
  absl::Status MakeRoomInIndex(uint64_t bytes, uint64_t but_not, std::vector<uint64_t>& removed);
  void RemoveLocked(uint64_t number);
  absl::Status ReadPart(const RandomAccessFile& file, const PrefixPart& part,
                        std::span<std::byte> into) const;
  absl::StatusOr<std::shared_ptr<const PrefixImage>> ReadParts(
      const PrefixRecord& record, std::shared_ptr<const PrefixSpan> before,
      const std::shared_ptr<MemoryMeter>& meter, uint64_t* damaged_number) const;

  const PrefixStoreOptions options_;
  const UniqueFd lock_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable work_;
  std::condition_variable idle_;
  PrefixIndex index_;
  std::deque<Job> waiting_;
  bool writing_ = false;
  bool stopping_ = false;
  PrefixStoreStats stats_;
  std::thread writer_;  // the last: it uses all above
};

}  // namespace hearth
