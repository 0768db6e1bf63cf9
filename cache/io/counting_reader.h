// Counts what goes through a reader: reads, bytes, failures, and the time with at least one read in
// flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

struct ReadCounts {
  uint64_t read_count = 0;  // completed well
  uint64_t read_bytes = 0;  // of those
  uint64_t failed_count = 0;
  int64_t busy_ns = 0;  // with reads in flight, as the owner saw them submitted and completed
};

class CountingReader final : public Reader {
 public:
  // `clock` outlives the reader.
  CountingReader(std::unique_ptr<Reader> inner, Clock& clock);

  ReadCounts counts() const;  // from any thread

  absl::StatusOr<size_t> Submit(std::span<const ReadRequest> requests) override;
  absl::StatusOr<size_t> Wait(std::span<ReadCompletion> out, int64_t timeout_ns) override;
  void Wake() override { inner_->Wake(); }
  uint32_t in_flight() const override { return inner_->in_flight(); }
  const ReaderTraits& traits() const override { return inner_->traits(); }

 private:
  struct Sent {
    uint64_t tag = 0;
    uint64_t bytes = 0;
  };

  std::unique_ptr<Reader> inner_;
  Clock& clock_;
  std::vector<Sent> sent_;            // the inner reader's tag is the index
  std::vector<uint32_t> free_slots_;  // of sent_
  std::vector<ReadRequest> tagged_;   // room for one Submit()
  mutable std::mutex mutex_;          // guards what follows
  ReadCounts counts_;
  bool is_busy_ = false;
  int64_t busy_since_ns_ = 0;
};

}  // namespace hearth
