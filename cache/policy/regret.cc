#include "cache/policy/regret.h"

#include <algorithm>

#include "cache/policy/belady.h"
#include "runtime/base/check.h"

namespace hearth {
namespace {

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// The steps of one pool, and how many of its uses hit.
StepSequence StepsOf(const RegretSample& sample, const PoolShape& pool, uint64_t& hits) {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> row_of_layer(sample.layer_count, kNone);
  for (uint32_t row = 0; row < pool.layers.size(); ++row) {
    HEARTH_CHECK(pool.layers[row].value < sample.layer_count);
    row_of_layer[pool.layers[row].value] = row;
  }
  StepSequence steps{.item_count = static_cast<uint32_t>(pool.layers.size()) * sample.expert_count,
                     .begins = {0}};
  size_t at = 0;
  for (size_t i = 0; i < sample.counts.size(); ++i) {
    const uint32_t row = row_of_layer[i % sample.layer_count];
    for (uint32_t n = 0; n < sample.counts[i]; ++n, ++at) {
      if (row == kNone) continue;
      steps.items.push_back(row * sample.expert_count + sample.uses[at].expert);
      hits += sample.uses[at].hit ? 1 : 0;
    }
    if (row != kNone) steps.begins.push_back(steps.items.size());
  }
  return steps;
}

}  // namespace

double Regret::hit_rate() const { return Ratio(hits, distinct); }
double Regret::belady_hit_rate() const { return Ratio(belady_hits, distinct); }

Regret MeasureRegret(const RegretSample& sample, std::span<const PoolShape> pools) {
  Regret regret{.window_count = sample.window_count()};
  for (const PoolShape& pool : pools) {
    const StepSequence steps = StepsOf(sample, pool, regret.hits);
    regret.distinct += steps.items.size();
    regret.belady_hits += Belady(steps, pool.slot_count, BeladyStart::kFilled).hit_count;
  }
  return regret;
}

RegretRing::RegretRing(const Shape& shape)
    : shape_(shape),
      uses_(size_t{shape.window_count_max} * shape.layer_count * shape.layer_uses_max),
      counts_((size_t{shape.window_count_max} + 1) * shape.layer_count) {
  HEARTH_CHECK(shape.expert_count <= 32768);
  HEARTH_CHECK(shape.window_count_max > 0 && shape.layer_uses_max > 0);
}

void RegretRing::DropOldest() {
  const size_t row = window_begin_ % (shape_.window_count_max + 1);
  for (uint32_t l = 0; l < shape_.layer_count; ++l) {
    uint16_t& count = counts_[row * shape_.layer_count + l];
    for (uint32_t n = 0; n < count; ++n) hit_count_ -= uses_[use_begin_++ % uses_.size()] & 1;
    count = 0;
  }
  ++window_begin_;
  --window_count_;
}

void RegretRing::Add(LayerId layer, std::span<const ExpertId> experts,
                     std::span<const uint8_t> hits) {
  HEARTH_CHECK(layer.value < shape_.layer_count);
  HEARTH_CHECK(hits.size() == experts.size());
  if (overflown_) return;
  while (window_count_ > 0 && use_end_ - use_begin_ + experts.size() > uses_.size()) DropOldest();
  if (use_end_ - use_begin_ + experts.size() > uses_.size()) {
    overflown_ = true;
    return;
  }
  const size_t row = (window_begin_ + window_count_) % (shape_.window_count_max + 1);
  uint16_t& count = counts_[row * shape_.layer_count + layer.value];
  HEARTH_CHECK(count == 0);
  for (size_t i = 0; i < experts.size(); ++i) {
    HEARTH_CHECK(experts[i].value < shape_.expert_count);
    uses_[use_end_++ % uses_.size()] =
        static_cast<uint16_t>(experts[i].value << 1 | (hits[i] != 0 ? 1 : 0));
  }
  count = static_cast<uint16_t>(experts.size());
  open_uses_ += experts.size();
}

void RegretRing::EndWindow() {
  const size_t row = (window_begin_ + window_count_) % (shape_.window_count_max + 1);
  if (overflown_) {
    use_end_ -= open_uses_;
    std::fill_n(counts_.begin() + static_cast<ptrdiff_t>(row * shape_.layer_count),
                shape_.layer_count, uint16_t{0});
  } else {
    for (uint64_t i = use_end_ - open_uses_; i < use_end_; ++i) {
      hit_count_ += uses_[i % uses_.size()] & 1;
    }
    ++window_count_;
    if (window_count_ > shape_.window_count_max) DropOldest();
  }
  open_uses_ = 0;
  overflown_ = false;
}

void RegretRing::Clear() {
  overflown_ = true;
  EndWindow();
  while (window_count_ > 0) DropOldest();
}

double RegretRing::hit_rate() const {
  return Ratio(hit_count_, use_end_ - use_begin_ - open_uses_);
}

RegretSample RegretRing::Sample() const {
  RegretSample sample{.layer_count = shape_.layer_count, .expert_count = shape_.expert_count};
  sample.counts.reserve(window_count_ * shape_.layer_count);
  for (uint64_t w = window_begin_; w < window_begin_ + window_count_; ++w) {
    const size_t row = w % (shape_.window_count_max + 1);
    for (uint32_t l = 0; l < shape_.layer_count; ++l) {
      sample.counts.push_back(counts_[row * shape_.layer_count + l]);
    }
  }
  sample.uses.reserve(use_end_ - use_begin_ - open_uses_);
  for (uint64_t i = use_begin_; i < use_end_ - open_uses_; ++i) {
    const uint16_t use = uses_[i % uses_.size()];
    sample.uses.push_back({.expert = static_cast<uint16_t>(use >> 1), .hit = (use & 1) != 0});
  }
  return sample;
}

}  // namespace hearth
