#include "cache/policy/heat_model.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace hearth {
namespace {

// Averages below this are nothing: subnormal numbers would be slow to compute with.
constexpr float kHeatMin = 1e-20f;
// Whole numbers are exact in a float up to 2^24; counts are halved and clocks set back before that.
constexpr float kExactMax = 1 << 23;

class TwoScaleHeat final : public HeatModel {
 public:
  TwoScaleHeat(const HeatShape& shape, const TwoScaleOptions& options)
      : HeatModel(shape), options_(options), fast_(scores_.size()), slow_(scores_.size()) {
    for (uint32_t n = 0; n < powers_.size(); ++n) powers_[n] = PowersOf(n);
  }

  void Observe(uint32_t row, const LayerTraffic& traffic) override {
    float* const fast = Row(fast_, row);
    float* const slow = Row(slow_, row);
    float* const score = Row(scores_, row);
    for (const ExpertSighting& s : traffic.experts) {
      const uint32_t e = s.expert.value;
      if (traffic.kind == TrafficKind::kWindow) {
        fast[e] += 1;
        slow[e] += 1;
      } else {
        slow[e] += kPromptWeight * static_cast<float>(s.entry_count);
      }
      score[e] = options_.fast_weight * fast[e] + slow[e];
      count_max_ = std::max(count_max_, slow[e]);
    }
  }

  void Age(double tokens) override {
    const double whole = std::floor(tokens);
    const bool listed = whole == tokens && whole < static_cast<double>(powers_.size());
    const Powers keep = listed ? powers_[static_cast<size_t>(whole)] : PowersOf(tokens);
    // A count that never decays is halved instead: order and ratios stay.
    const float halve = count_max_ > kExactMax ? 0.5f : 1.0f;
    const float keep_fast = keep.fast * halve;
    const float keep_slow = keep.slow * halve;
    count_max_ *= keep_slow;
    const float weight = options_.fast_weight;
    float* const fast = fast_.data();
    float* const slow = slow_.data();
    float* const score = scores_.data();
    const size_t count = scores_.size();
    for (size_t i = 0; i < count; ++i) {
      const float f = fast[i] * keep_fast;
      const float s = slow[i] * keep_slow;
      fast[i] = f < kHeatMin ? 0.0f : f;
      slow[i] = s < kHeatMin ? 0.0f : s;
      score[i] = weight * fast[i] + slow[i];
    }
  }

  void Seed(uint32_t row, std::span<const float> sightings) override {
    for (uint32_t e = 0; e < shape_.expert_count; ++e) {
      float& slow = Row(slow_, row)[e];
      slow += sightings[e];
      Row(scores_, row)[e] = options_.fast_weight * Row(fast_, row)[e] + slow;
      count_max_ = std::max(count_max_, slow);
    }
  }

 private:
  struct Powers {
    float fast = 1;
    float slow = 1;
  };
  Powers PowersOf(double tokens) const {
    return {static_cast<float>(std::pow(double{options_.fast_keep}, tokens)),
            static_cast<float>(std::pow(double{options_.slow_keep}, tokens))};
  }

  const TwoScaleOptions options_;
  std::vector<float> fast_;
  std::vector<float> slow_;
  std::array<Powers, 17> powers_;  // of windows of 0 to 16 tokens
  float count_max_ = 0;            // at least the largest slow average
};

class RecencyHeat final : public HeatModel {
 public:
  explicit RecencyHeat(const HeatShape& shape) : HeatModel(shape), seeds_(scores_.size()) {}

  void Observe(uint32_t row, const LayerTraffic& traffic) override {
    for (const ExpertSighting& s : traffic.experts) Row(scores_, row)[s.expert.value] = clock_;
  }

  void Age(double tokens) override {
    (void)tokens;
    clock_ += 1;
    if (clock_ <= kExactMax) return;
    const float back = kExactMax / 2;  // what was last seen so long ago is all alike
    for (float& score : scores_) {
      if (score >= 1) score = std::max(score - back, 1.0f);
    }
    clock_ -= back;
  }

  void Seed(uint32_t row, std::span<const float> sightings) override {
    for (uint32_t e = 0; e < shape_.expert_count; ++e) {
      float& seed = Row(seeds_, row)[e];
      seed += sightings[e];
      float& score = Row(scores_, row)[e];
      if (score < 1) score = seed / (1 + seed);
    }
  }

 private:
  float clock_ = 1;
  std::vector<float> seeds_;
};

class SeededHeat final : public HeatModel {
 public:
  using HeatModel::HeatModel;
  void Observe(uint32_t row, const LayerTraffic& traffic) override { (void)row, (void)traffic; }
  void Age(double tokens) override { (void)tokens; }
  void Seed(uint32_t row, std::span<const float> sightings) override {
    for (uint32_t e = 0; e < shape_.expert_count; ++e) Row(scores_, row)[e] += sightings[e];
  }
};

}  // namespace

HeatModel::HeatModel(const HeatShape& shape)
    : shape_(shape), scores_(size_t{shape.row_count} * shape.expert_count) {}

std::unique_ptr<HeatModel> MakeTwoScaleHeat(const HeatShape& shape,
                                            const TwoScaleOptions& options) {
  HEARTH_CHECK(options.fast_keep >= 0 && options.fast_keep <= 1);
  HEARTH_CHECK(options.slow_keep >= 0 && options.slow_keep <= 1);
  return std::make_unique<TwoScaleHeat>(shape, options);
}

std::unique_ptr<HeatModel> MakeRecencyHeat(const HeatShape& shape) {
  return std::make_unique<RecencyHeat>(shape);
}

std::unique_ptr<HeatModel> MakeSeededHeat(const HeatShape& shape) {
  return std::make_unique<SeededHeat>(shape);
}

}  // namespace hearth
