// The bookkeeping of a pool whose experts are ranked by a heat model: who is resident, on its way
// in or out, and who must go first. The victim is the coldest resident of all layers that the pass
// at hand does not use; a candidate takes its place when it is hotter by a margin.
#pragma once

#include <memory>
#include <string>

#include "cache/policy/heat_model.h"
#include "cache/policy/residency_policy.h"

namespace hearth {

// A candidate of heat c takes the place of a victim of heat v when c > ratio * v and
// c > v + hysteresis. A layer below its minimum takes it however cold the candidate is.
struct Admission {
  bool evicts = true;  // false: only free slots are filled
  float ratio = 1;
  float hysteresis = 0;
};

std::unique_ptr<ResidencyPolicy> MakePooledPolicy(std::string name, const PoolShape& shape,
                                                  const Admission& admission,
                                                  std::unique_ptr<HeatModel> heat);

// What a heat model of this pool is made for.
HeatShape HeatShapeOf(const PoolShape& shape);

}  // namespace hearth
