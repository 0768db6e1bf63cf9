// A RAM tier that leaves to the page cache what is in RAM (`--mmap-experts`): experts.bin is mapped
// read-only. Every expert is brought in before it is handed out, on threads of the store's own
// where the caller does not wait, so that a page that cannot be read is an error of its expert. A
// file that is cut shorter while an expert of it is leased still kills the process: packs are not
// changed while they are used.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/store/expert_store.h"
#include "pack/reader/pack.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/memory_limits.h"

namespace hearth {

struct MappedStoreOptions {
  uint32_t thread_count = 4;  // that bring experts in, 1 to 64
  // What the page cache may take: less than the file is worth a note.
  MemoryLimit available = {};
};

class MappedStore final : public ExpertStore {
 public:
  // `file` and `clock` outlive the store. OutOfRange when the file is shorter than its experts.
  static absl::StatusOr<std::unique_ptr<MappedStore>> Create(const ExpertFile& file,
                                                             const MappedStoreOptions& options,
                                                             Clock& clock);
  ~MappedStore() override;  // tells with Cancelled whoever waits

  uint32_t layer_count() const override { return file_.layer_count(); }
  uint32_t expert_count() const override { return file_.expert_count(); }
  const ExpertLayout& layout(LayerId layer) const override { return file_.layout(layer); }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override;
  // Asks the kernel about the first, the middle and the last page of an expert that has been used
  // before: the page cache drops what it drops from the oldest end, seldom a hole in the middle.
  std::optional<ExpertLease> TryAcquire(ExpertKey key) override;
  void Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) override;
  void LookAhead(LayerId layer, std::span<const ExpertId> experts) override;
  // Reads are those that the kernel made for this store, its read-ahead included.
  StoreStats stats() const override;
  std::vector<std::string> notes() const override { return notes_; }

 private:
  struct Ask {
    ArrivalSink* sink = nullptr;  // null: a hint
    uint32_t index = 0;
    ExpertKey key;
  };
  struct AskRing {
    std::vector<Ask> entries;
    uint32_t begin = 0;
    uint32_t count = 0;
    bool Push(const Ask& ask);
    Ask Pop();
  };

  MappedStore(const ExpertFile& file, FileMapping mapping, Clock& clock);
  std::span<std::byte> Blob(ExpertKey key) const;
  // The pages of an expert.
  std::span<std::byte> Pages(ExpertKey key) const;
  absl::Status BringIn(ExpertKey key);
  absl::Status Populate(ExpertKey key) const;
  absl::Status ReadThrough(ExpertKey key) const;
  absl::Status Check(ExpertKey key);
  void Work();
  void Release(uint64_t) override {}

  const ExpertFile& file_;
  Clock& clock_;
  const FileMapping mapping_;
  const uint64_t page_bytes_;
  std::vector<std::string> notes_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  AskRing asks_;
  AskRing hints_;
  std::vector<uint8_t> checked_;  // by key
  StoreStats stats_;
  uint32_t busy_count_ = 0;  // experts that are being brought in
  int64_t busy_since_ns_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hearth
