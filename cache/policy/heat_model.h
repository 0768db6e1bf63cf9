// How hot the experts of a pool are: what sightings, seeds and time make of a score. One number for
// each expert of each of the pool's layers, larger is hotter. Which expert is in the pool is not
// known here. Not thread-safe; nothing allocates after construction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/policy/traffic.h"

namespace hearth {

// A prompt's route entry counts for so much of a window's sighting, and its token for so much of a
// window's token: a prompt is a hint about the text that follows, not the text itself.
inline constexpr float kPromptWeight = 0.03f;

struct HeatShape {
  uint32_t row_count = 0;     // layers of the pool, in its own order
  uint32_t expert_count = 0;  // per layer
};

class HeatModel {
 public:
  explicit HeatModel(const HeatShape& shape);
  virtual ~HeatModel() = default;

  // Raises the scores of the experts of `traffic`, whose layer is row `row` of the pool.
  virtual void Observe(uint32_t row, const LayerTraffic& traffic) = 0;
  // So many tokens have passed: 1 for each token of a window that was kept.
  virtual void Age(double tokens) = 0;
  // (expert_count) sightings from another time.
  virtual void Seed(uint32_t row, std::span<const float> sightings) = 0;

  std::span<const float> scores(uint32_t row) const {
    return std::span(scores_).subspan(size_t{row} * shape_.expert_count, shape_.expert_count);
  }

 protected:
  float* Row(std::vector<float>& values, uint32_t row) const {
    return values.data() + size_t{row} * shape_.expert_count;
  }
  const HeatShape shape_;
  std::vector<float> scores_;  // (row_count, expert_count)
};

// Two exponential averages of the sightings, one that forgets within a few tokens and one that
// remembers hundreds: score = fast_weight * fast + slow. A window adds one sighting to both, a
// prompt and a seed to the slow one alone. With fast_weight 0 it is one decayed count; with a
// slow_keep of 1 besides, a count for ever.
struct TwoScaleOptions {
  float fast_keep = 0.75f;  // what a token leaves of the fast average, [0, 1]
  float slow_keep = 0.99f;  // and of the slow one
  float fast_weight = 1;
};
std::unique_ptr<HeatModel> MakeTwoScaleHeat(const HeatShape& shape, const TwoScaleOptions& options);

// A forecast: how often an expert will be seen in the next kForecastTokens tokens, as the weighted
// sum of how often it was seen lately on four time scales, from 14 to 1,400 tokens, and of how
// lately at all. The weights are fitted as it runs (least squares over random experts, forgetting
// slowly), so that it follows how sticky routing is; they begin as a power law of age. Scores may
// be a little below 0.
inline constexpr uint32_t kForecastTokens = 16;
std::unique_ptr<HeatModel> MakeForecastHeat(const HeatShape& shape);

// When an expert was last seen: the pass counts, not the tokens. Experts never seen come below all
// that were, the more often seeded ones first.
std::unique_ptr<HeatModel> MakeRecencyHeat(const HeatShape& shape);

// What was seeded, and nothing else.
std::unique_ptr<HeatModel> MakeSeededHeat(const HeatShape& shape);

}  // namespace hearth
