// Blobs on their way from a Reader into blocks: each is split into a few requests, which complete
// in any order; it has ended when all of them have. Used by the I/O thread alone. Allocates nothing
// after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "cache/io/reader.h"
#include "cache/store/ram_blocks.h"
#include "runtime/base/clock.h"

namespace hearth {

struct BlobReadLimits {
  uint32_t requests_per_blob = 2;
  uint32_t blobs_in_flight_max = 8;
  int64_t timeout_ns = 0;
};

class BlobReads {
 public:
  BlobReads(Reader& reader, Clock& clock, const BlobReadLimits& limits);

  void ChangeReader(Reader& reader);  // while nothing is under way

  bool has_room() const { return blob_count_ < reads_.size(); }
  uint32_t blob_count() const { return blob_count_; }  // those given up included
  int64_t busy_ns() const { return busy_ns_; }         // time with at least one blob under way

  // Not before the next Submit().
  void Add(BlockId block, uint64_t offset_bytes, std::span<std::byte> into);
  // Hands the reader what it has room for. An error: the requests were not taken, and their blobs
  // end with it.
  void Submit();
  // Waits for completions, Wake() or the time. An error: the reader is broken for good.
  absl::Status Wait(int64_t timeout_ns);

  struct Ended {
    BlockId block;
    absl::Status status;
    bool given_up = false;  // its askers have been told already
  };
  std::span<const Ended> ended() const { return ended_; }
  void ClearEnded() { ended_.clear(); }

  struct GivenUp {
    BlockId block;
    absl::Status status;
  };
  // Blobs that have taken longer than the timeout, each once: they stay under way, as the kernel
  // may still write to their blocks, and end later, or never. Good until the next call.
  std::span<const GivenUp> GiveUpLate();
  std::span<const GivenUp> GiveUpAll(const absl::Status& why);
  // When the next blob will be late; INT64_MAX for never.
  int64_t next_late_ns() const;

 private:
  struct Read {
    BlockId block;
    uint32_t requests_left = 0;  // 0: unused
    int64_t late_ns = 0;
    bool given_up = false;
    absl::Status status;
  };

  std::span<const GivenUp> GiveUp(int64_t late_before_ns, const absl::Status& why);
  void DropWaiting(uint64_t tag);
  void EndRequest(uint64_t tag, const absl::Status& status);

  Reader* reader_;
  Clock& clock_;
  const BlobReadLimits limits_;
  uint64_t align_bytes_;
  std::vector<Read> reads_;  // a request's tag is its blob's index
  uint32_t blob_count_ = 0;
  std::vector<ReadRequest> waiting_;  // not submitted yet
  std::vector<ReadCompletion> completions_;
  std::vector<Ended> ended_;
  std::vector<GivenUp> given_up_;
  int64_t busy_ns_ = 0;
  int64_t busy_since_ns_ = 0;
};

}  // namespace hearth
