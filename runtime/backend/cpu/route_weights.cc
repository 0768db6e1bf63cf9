#include "runtime/backend/cpu/route_weights.h"

#include <cmath>

namespace hearth {

void RouteWeights(const MoeGeometry& moe, std::span<const float> scores,
                  std::span<const uint32_t> chosen, std::span<float> weight) {
  const float top = scores[chosen[0]];
  float sum = 0;
  for (size_t r = 0; r < chosen.size(); ++r) {
    weight[r] = std::exp(scores[chosen[r]] - top);
    sum += weight[r];
  }
  if (!moe.renormalise) {
    sum = 0;
    for (const float score : scores) sum += std::exp(score - top);
  }
  for (size_t r = 0; r < chosen.size(); ++r) weight[r] /= sum;
}

}  // namespace hearth
