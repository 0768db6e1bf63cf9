// Whether reading ahead is worth it: a wrong guess keeps the drive from the next expert that is
// asked for. The guesses are judged by how many of them were used; while too few are, only a sample
// is read now and then.
#pragma once

#include <cstdint>

namespace hearth {

class LookAheadGate {
 public:
  static constexpr uint64_t kReadsPerJudgement = 64;
  static constexpr double kUsedShareMin = 0.5;     // below, a read costs more than it saves
  static constexpr uint32_t kClosedLayers = 2048;  // before the next sample

  // Before each layer: may it read ahead?
  bool Open();
  // Totals of the RAM tier so far: reads by lookahead and those of them that were used.
  void Judge(uint64_t read_count, uint64_t used_count);

 private:
  uint64_t judged_reads_ = 0;
  uint64_t judged_used_ = 0;
  uint32_t closed_layers_left_ = 0;
};

}  // namespace hearth
