// The weights of the chosen experts from the router's scores.
#pragma once

#include <cstdint>
#include <span>

#include "pack/format/geometry.h"

namespace hearth {

// weight[r] = softmax(scores)[chosen[r]], divided by the sum over `chosen` when the model
// renormalises. Renormalised, that is the softmax over the chosen scores alone. chosen[0] has the
// largest score.
void RouteWeights(const MoeGeometry& moe, std::span<const float> scores,
                  std::span<const uint32_t> chosen, std::span<float> weight);

}  // namespace hearth
