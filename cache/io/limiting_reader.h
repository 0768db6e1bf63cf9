// A reader made slower: as a drive of a given rate that answers one read after the other, with a
// bound on reads in flight. For measuring with the drive of another machine, and for tests.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "cache/io/holding_reader.h"
#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

struct ReadLimits {
  uint64_t bytes_per_sec = 0;  // 0: no limit
  uint32_t in_flight_max = 0;  // 0: the inner reader's; more than that is lowered to it
};

class LimitingReader final : public HoldingReader {
 public:
  // `clock` outlives the reader.
  LimitingReader(std::unique_ptr<Reader> inner, const ReadLimits& limits, Clock& clock);

 private:
  void Plan(Held& held) override;

  uint64_t bytes_per_sec_;
  int64_t free_ns_ = 0;  // when the drive has answered everything so far
};

}  // namespace hearth
