// A reader with faults on purpose: errors, reads that come in parts, delays, completions out of
// order, flipped bits. Which read meets which fault follows from the seed and the read's number
// alone, so a run can be repeated. For tests.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/io/holding_reader.h"
#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

struct FaultRates {
  double io_error = 0;    // share of the reads that fail with EIO, their memory untouched
  double short_read = 0;  // share that is answered in two parts, the second asked for afterwards
  double bit_flip = 0;    // share that is ok and has one bit wrong
  double delay = 0;       // share that is late by up to delay_ns_max
  int64_t delay_ns_max = 0;
  // Reads that must have landed (or all that are in flight) before one is handed out, in an order
  // of the seed's; 1: in the order of submission.
  uint32_t reorder_count = 1;
};

class FaultyReader final : public HoldingReader {
 public:
  // `clock` outlives the reader.
  FaultyReader(std::unique_ptr<Reader> inner, uint64_t seed, const FaultRates& rates, Clock& clock);

 private:
  void Plan(Held& held) override;
  void OnLanded(Held& held) override;

  uint64_t seed_;
  FaultRates rates_;
};

}  // namespace hearth
