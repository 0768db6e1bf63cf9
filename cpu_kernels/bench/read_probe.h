// How fast this machine reads: the rate that a number of workers get together from memory of a
// given extent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu_kernels/bench/read_lines.h"
#include "runtime/base/clock.h"
#include "runtime/base/worker_team.h"

namespace hearth {

class ReadProbe {
 public:
  // All workers read `memory` from one end to the other, each its share: DRAM, where `memory` is
  // larger than the caches.
  static ReadProbe OfWalk(WorkerTeam& team, Clock& clock, Isa isa,
                          std::span<const std::byte> memory);
  // Each worker reads its own `bytes_each` of `memory` again and again: the cache that holds them.
  static ReadProbe OfLoop(WorkerTeam& team, Clock& clock, Isa isa,
                          std::span<const std::byte> memory, uint64_t bytes_each);

  // Finds the fastest order of reading and how much to read in `sample_ns`.
  void Calibrate(int64_t sample_ns);
  double Sample();  // bytes per second of all workers; Calibrate() comes first

 private:
  ReadProbe(WorkerTeam& team, Clock& clock, Isa isa, std::span<const std::byte> memory,
            uint64_t loop_bytes);
  void Read(ReadOrder order, uint64_t amount);
  double Rate(ReadOrder order, uint64_t amount);

  WorkerTeam* team_;
  Clock* clock_;
  Isa isa_;
  std::span<const std::byte> memory_;
  uint64_t loop_bytes_;  // zero: a walk
  uint64_t cursor_ = 0;  // of a walk, bytes
  uint64_t amount_ = 1;  // of one sample: grains of a walk for each worker, rounds of a loop
  ReadOrder order_ = ReadOrder::kSequential;
  uint64_t sink_ = 0;  // what was read, so that it has to be
};

}  // namespace hearth
