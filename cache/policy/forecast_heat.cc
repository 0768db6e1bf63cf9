// Heat as a forecast of the next tokens, fitted as it runs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "cache/policy/heat_model.h"
#include "cache/policy/least_squares.h"
#include "cache/policy/profile_seed.h"
#include "runtime/base/check.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

// Four averages that remember 14, 67, 300 and 1,400 tokens, and one trace of the last sighting
// alone, which is how LRU sees an expert.
constexpr size_t kScales = 5;
constexpr size_t kRecency = 4;
using Scales = std::array<double, kScales>;

constexpr Scales kKeep = {0.93, 0.985, 0.9967, 0.9993, 0.96};  // what a token leaves of each
// The first guess: a sighting counts as about its age to the power of -0.8.
constexpr Scales kGuess = {2.1, 2.9, 4.0, 5.4, 0.5};
constexpr double kPull = 1;
// So many random experts are watched from each pass on until their forecast is over. 64 in 50,000
// remembered ones are about 800 passes.
constexpr uint32_t kSamplesPerPass = 64;
constexpr double kSampleKeep = 1 - 1.0 / 50'000;
// Passes of one token need room for kForecastTokens passes; shorter ones are watched less.
constexpr size_t kSamplesMax = size_t{kSamplesPerPass} * (kForecastTokens + 1);
// Uses are counted in 256ths, so that a prompt's entries count too; differences are taken, so that
// the counts may wrap around.
constexpr float kUseUnits = 256;
// Averages below this are nothing: subnormal numbers would be slow to compute with.
constexpr float kAverageMin = 1e-20f;

Scales PowersOf(double tokens) {
  Scales powers{};
  for (size_t k = 0; k < kScales; ++k) powers[k] = std::pow(kKeep[k], tokens);
  return powers;
}

LeastSquares<kScales>::Options FitOptions() {
  return {.guess = kGuess, .pull = kPull, .keep = kSampleKeep};
}

class ForecastHeat final : public HeatModel {
 public:
  explicit ForecastHeat(const HeatShape& shape)
      : HeatModel(shape),
        averages_(scores_.size() * kScales),
        uses_(scores_.size()),
        rows_(shape.row_count),
        fit_(FitOptions()),
        watched_(kSamplesMax) {
    for (uint32_t n = 0; n < powers_.size(); ++n) powers_[n] = PowersOf(n);
    UpdateFactors();
  }

  void Observe(uint32_t row, const LayerTraffic& traffic) override;
  void Age(double tokens) override;
  void Seed(uint32_t row, std::span<const float> sightings) override;

 private:
  // How much of an average's memory there has been time to fill, and what the averages are
  // multiplied by to become rates and then a score.
  struct RowState {
    Scales filled{};
    Scales rate{};
    std::array<float, kScales> factor{};
  };
  struct Watched {
    double due_tokens = 0;
    uint32_t index = 0;      // of the expert: row x expert_count + expert
    uint32_t uses_then = 0;  // its count when the forecast was made
    Scales rates{};
  };

  float* Averages(uint32_t row, size_t scale) {
    return &averages_[(size_t{row} * kScales + scale) * shape_.expert_count];
  }
  Scales PowersFor(double tokens) const;
  void UpdateFactors();
  void ScoreRow(uint32_t row);
  void JudgeForecasts();
  void WatchMore();

  // (row_count, kScales, expert_count): sightings, each worth kKeep as much with every token since.
  std::vector<float> averages_;
  std::vector<uint32_t> uses_;  // (row_count, expert_count), in 1/256
  std::vector<RowState> rows_;
  LeastSquares<kScales> fit_;
  std::vector<Watched> watched_;  // ring
  size_t watched_begin_ = 0;
  size_t watched_count_ = 0;
  double now_tokens_ = 0;
  Prng prng_{1};  // any: which experts are watched does not matter
  std::array<Scales, 17> powers_;
};

Scales ForecastHeat::PowersFor(double tokens) const {
  const double whole = std::floor(tokens);
  const bool listed = whole == tokens && whole < static_cast<double>(powers_.size());
  return listed ? powers_[static_cast<size_t>(whole)] : PowersOf(tokens);
}

void ForecastHeat::Observe(uint32_t row, const LayerTraffic& traffic) {
  std::array<float*, kScales> averages;
  for (size_t k = 0; k < kScales; ++k) averages[k] = Averages(row, k);
  const std::array<float, kScales>& factor = rows_[row].factor;
  float* const score = Row(scores_, row);
  uint32_t* const uses = &uses_[size_t{row} * shape_.expert_count];
  for (const ExpertSighting& s : traffic.experts) {
    const uint32_t e = s.expert.value;
    const float sighting = traffic.kind == TrafficKind::kWindow
                               ? 1.0f
                               : kPromptWeight * static_cast<float>(s.entry_count);
    uses[e] += static_cast<uint32_t>(sighting * kUseUnits);
    float sum = 0;
    for (size_t k = 0; k < kScales; ++k) {
      float& average = averages[k][e];
      average = k == kRecency ? std::max(average, std::min(sighting, 1.0f)) : average + sighting;
      sum += factor[k] * average;
    }
    score[e] = sum;
  }
}

// From the averages' fill and the weights.
void ForecastHeat::UpdateFactors() {
  for (RowState& row : rows_) {
    for (size_t k = 0; k < kScales; ++k) {
      const double one_token = 1 - kKeep[k];
      row.rate[k] = k == kRecency ? 1 : one_token / std::max(row.filled[k], one_token);
      row.factor[k] = static_cast<float>(fit_.weights()[k] * row.rate[k]);
    }
  }
}

void ForecastHeat::ScoreRow(uint32_t row) {
  static_assert(kScales == 5);
  const float* const a0 = Averages(row, 0);
  const float* const a1 = Averages(row, 1);
  const float* const a2 = Averages(row, 2);
  const float* const a3 = Averages(row, 3);
  const float* const a4 = Averages(row, 4);
  const auto [f0, f1, f2, f3, f4] = rows_[row].factor;
  float* const score = Row(scores_, row);
  for (uint32_t e = 0; e < shape_.expert_count; ++e) {
    score[e] = f0 * a0[e] + f1 * a1[e] + f2 * a2[e] + f3 * a3[e] + f4 * a4[e];
  }
}

void ForecastHeat::Age(double tokens) {
  WatchMore();  // what the pass has seen, not aged yet: as when its swaps are decided
  now_tokens_ += tokens;
  const Scales keep = PowersFor(tokens);
  for (RowState& row : rows_) {
    for (size_t k = 0; k < kScales; ++k) row.filled[k] = 1 - (1 - row.filled[k]) * keep[k];
  }
  JudgeForecasts();
  UpdateFactors();
  for (uint32_t row = 0; row < shape_.row_count; ++row) {
    for (size_t k = 0; k < kScales; ++k) {
      const auto factor = static_cast<float>(keep[k]);
      float* const average = Averages(row, k);
      for (uint32_t e = 0; e < shape_.expert_count; ++e) {
        const float x = average[e] * factor;
        average[e] = x < kAverageMin ? 0.0f : x;
      }
    }
    ScoreRow(row);
  }
}

// Holds the forecasts that are over against what came, and fits the weights to it.
void ForecastHeat::JudgeForecasts() {
  bool any = false;
  while (watched_count_ > 0 && watched_[watched_begin_].due_tokens <= now_tokens_) {
    const Watched& w = watched_[watched_begin_];
    fit_.Add(w.rates, static_cast<float>(uses_[w.index] - w.uses_then) / kUseUnits);
    watched_begin_ = (watched_begin_ + 1) % kSamplesMax;
    --watched_count_;
    any = true;
  }
  if (any) fit_.Solve();
}

void ForecastHeat::WatchMore() {
  for (uint32_t n = 0; n < kSamplesPerPass && watched_count_ < kSamplesMax; ++n) {
    const auto row = static_cast<uint32_t>(prng_.Below(shape_.row_count));
    const auto expert = static_cast<uint32_t>(prng_.Below(shape_.expert_count));
    Watched& w = watched_[(watched_begin_ + watched_count_) % kSamplesMax];
    w.due_tokens = now_tokens_ + kForecastTokens;
    w.index = row * shape_.expert_count + expert;
    w.uses_then = uses_[w.index];
    for (size_t k = 0; k < kScales; ++k) {
      w.rates[k] = rows_[row].rate[k] * double{Averages(row, k)[expert]};
    }
    ++watched_count_;
  }
}

// As if that many tokens with these sightings had just passed in this layer.
void ForecastHeat::Seed(uint32_t row, std::span<const float> sightings) {
  const Scales keep = PowersOf(kProfileSightings);
  for (size_t k = 0; k < kScales; ++k) {
    if (k == kRecency) continue;  // nobody knows when
    const auto factor = static_cast<float>(keep[k]);
    const auto gain = static_cast<float>((1 - keep[k]) / (1 - kKeep[k]) / kProfileSightings);
    float* const average = Averages(row, k);
    for (uint32_t e = 0; e < shape_.expert_count; ++e) {
      average[e] = average[e] * factor + sightings[e] * gain;
    }
    rows_[row].filled[k] = 1 - (1 - rows_[row].filled[k]) * keep[k];
  }
  UpdateFactors();
  ScoreRow(row);
}

}  // namespace

std::unique_ptr<HeatModel> MakeForecastHeat(const HeatShape& shape) {
  HEARTH_CHECK(uint64_t{shape.row_count} * shape.expert_count > 0);
  return std::make_unique<ForecastHeat>(shape);
}

}  // namespace hearth
