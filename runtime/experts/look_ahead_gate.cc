#include "runtime/experts/look_ahead_gate.h"

namespace hearth {

bool LookAheadGate::Open() {
  if (closed_layers_left_ == 0) return true;
  --closed_layers_left_;
  return false;
}

void LookAheadGate::Judge(uint64_t read_count, uint64_t used_count) {
  const uint64_t reads = read_count - judged_reads_;
  if (reads < kReadsPerJudgement) return;
  const auto used = static_cast<double>(used_count - judged_used_);
  if (used < kUsedShareMin * static_cast<double>(reads)) closed_layers_left_ = kClosedLayers;
  judged_reads_ = read_count;
  judged_used_ = used_count;
}

}  // namespace hearth
