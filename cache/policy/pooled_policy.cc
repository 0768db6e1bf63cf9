#include "cache/policy/pooled_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kNone = UINT32_MAX;

// What an expert is at the moment; a victim may be whoever is resident and nothing else.
enum Flag : uint8_t {
  kResident = 1,
  kIncoming = 2,        // the `in` of a swap that has begun
  kOutgoing = 4,        // the `out` of one
  kOutgoingAcross = 8,  // besides: for an expert of another layer
  kCurrent = 16,        // the pass at hand uses it
};

struct Coldest {
  float score = kInfinity;
  uint32_t expert = kNone;
};

// The least sum of the two, and the first expert that has it. The eight minima are what the
// compiler makes vectors of.
Coldest FindColdest(std::span<const float> scores, const float* barred) {
  constexpr size_t kLanes = 8;
  float least[kLanes];
  std::fill_n(least, kLanes, kInfinity);
  const size_t whole = scores.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      const float x = scores[i + j] + barred[i + j];
      least[j] = x < least[j] ? x : least[j];
    }
  }
  Coldest coldest{.score = *std::min_element(least, least + kLanes)};
  for (size_t i = whole; i < scores.size(); ++i) {
    coldest.score = std::min(coldest.score, scores[i] + barred[i]);
  }
  if (coldest.score == kInfinity) return coldest;
  uint32_t e = 0;
  while (scores[e] + barred[e] != coldest.score) ++e;
  coldest.expert = e;
  return coldest;
}

class PooledPolicy final : public ResidencyPolicy {
 public:
  PooledPolicy(std::string name, const PoolShape& shape, const Admission& admission,
               std::unique_ptr<HeatModel> heat);

  std::string_view name() const override { return name_; }
  void Observe(const LayerTraffic& traffic) override;
  size_t Propose(std::span<Swap> out) override;
  void EndWindow(uint32_t token_count) override;
  void Begin(const Swap& swap) override;
  void Land(const Swap& swap) override;
  void Cancel(const Swap& swap) override;
  void Remove(ExpertKey key) override;
  bool resident(ExpertKey key) const override;
  uint32_t resident_count() const override { return resident_count_; }
  void Seed(LayerId layer, std::span<const float> sightings) override;
  float Heat(ExpertKey key) const override;
  void Resize(uint32_t slot_count) override;
  ExpertKey Coldest() const override;

 private:
  struct Position {  // of an expert of the pool
    uint32_t row = kNone;
    uint32_t expert = 0;
  };

  Position Locate(ExpertKey key) const;
  ExpertKey KeyOf(Position p) const { return {layers_[p.row], ExpertId(p.expert)}; }
  size_t IndexOf(Position p) const { return size_t{p.row} * expert_count_ + p.expert; }
  uint8_t& FlagsOf(Position p) { return flags_[IndexOf(p)]; }
  const float* BarredOf(uint32_t row) const { return &barred_[size_t{row} * expert_count_]; }
  float ScoreOf(Position p) const { return heat_->scores(p.row)[p.expert]; }
  void Refresh(Position p);
  void Bar(Position p);
  void Unbar(Position p);
  size_t CollectCandidates(size_t count_max);
  Position FindVictim(uint32_t row, bool elsewhere);
  bool Admits(float candidate, float victim) const;
  void AbandonVictim(Position out);

  const std::string name_;
  const uint32_t expert_count_;
  const std::vector<LayerId> layers_;  // by row
  const Admission admission_;
  const std::unique_ptr<HeatModel> heat_;
  std::vector<uint32_t> row_of_layer_;  // (layer_count), kNone: of another pool
  uint32_t slot_count_;
  uint32_t layer_slots_min_;

  std::vector<uint8_t> flags_;  // (rows, experts)
  std::vector<float> barred_;   // (rows, experts): 0 for who may be a victim, infinity otherwise
  std::vector<hearth::Coldest> coldest_;  // (rows): the coldest victim, unless stale
  std::vector<uint8_t> stale_;            // (rows)
  // (rows): residents, less those that leave for an expert of another layer.
  std::vector<uint32_t> level_;
  uint32_t resident_count_ = 0;
  uint32_t growth_count_ = 0;  // swaps under way that will not take a resident's place

  std::vector<Position> current_;  // the experts of the pass at hand
  uint32_t row_ = kNone;           // last observed
  size_t row_begin_ = 0;           // its experts, from here on in current_
  bool prompt_ = false;            // the pass at hand is one
  std::vector<uint32_t> candidates_;
  std::vector<Position> proposed_victims_;
};

PooledPolicy::PooledPolicy(std::string name, const PoolShape& shape, const Admission& admission,
                           std::unique_ptr<HeatModel> heat)
    : name_(std::move(name)),
      expert_count_(shape.expert_count),
      layers_(shape.layers),
      admission_(admission),
      heat_(std::move(heat)),
      row_of_layer_(shape.layer_count, kNone),
      slot_count_(shape.slot_count),
      layer_slots_min_(shape.layer_slots_min) {
  const size_t rows = layers_.size();
  for (uint32_t row = 0; row < rows; ++row) row_of_layer_[layers_[row].value] = row;
  const size_t count = rows * expert_count_;
  flags_.resize(count);
  barred_.resize(count, kInfinity);
  coldest_.resize(rows);
  stale_.resize(rows);
  level_.resize(rows);
  current_.reserve(count + expert_count_);
  candidates_.reserve(expert_count_);
  proposed_victims_.reserve(expert_count_);
}

PooledPolicy::Position PooledPolicy::Locate(ExpertKey key) const {
  if (key.layer.value >= row_of_layer_.size() || key.expert.value >= expert_count_) return {};
  return {row_of_layer_[key.layer.value], key.expert.value};
}

// Takes an expert out of the ranks of the possible victims, or puts it back.
void PooledPolicy::Bar(Position p) {
  barred_[IndexOf(p)] = kInfinity;
  if (coldest_[p.row].expert == p.expert) stale_[p.row] = 1;
}

void PooledPolicy::Unbar(Position p) {
  barred_[IndexOf(p)] = 0;
  if (stale_[p.row] != 0) return;
  hearth::Coldest& coldest = coldest_[p.row];
  const float score = ScoreOf(p);
  if (score < coldest.score || (score == coldest.score && p.expert < coldest.expert)) {
    coldest = {score, p.expert};
  }
}

void PooledPolicy::Refresh(Position p) { FlagsOf(p) == kResident ? Unbar(p) : Bar(p); }

void PooledPolicy::Observe(const LayerTraffic& traffic) {
  const Position first = Locate({traffic.layer, ExpertId(0)});
  HEARTH_CHECK(first.row != kNone);  // the caller gives each pool its own layers
  row_ = first.row;
  prompt_ = traffic.kind == TrafficKind::kPrompt;
  heat_->Observe(row_, traffic);
  // A layer's experts lie together at the end, also those that an earlier call of the pass had.
  if (current_.size() + traffic.experts.size() > current_.capacity()) {
    std::ranges::sort(current_, {}, [this](Position p) { return IndexOf(p); });
    const auto same = [](Position a, Position b) { return a.row == b.row && a.expert == b.expert; };
    current_.erase(std::unique(current_.begin(), current_.end(), same), current_.end());
  }
  row_begin_ = current_.size();
  for (const ExpertSighting& s : traffic.experts) {
    HEARTH_CHECK(s.expert.value < expert_count_);
    const Position p{row_, s.expert.value};
    FlagsOf(p) |= kCurrent;
    Bar(p);
    current_.push_back(p);
  }
}

// The experts of the layer last observed that are neither here nor on their way: the hottest
// `count_max` of them, hottest first.
size_t PooledPolicy::CollectCandidates(size_t count_max) {
  candidates_.clear();
  for (size_t i = row_begin_; i < current_.size(); ++i) {
    if ((FlagsOf(current_[i]) & (kResident | kIncoming)) == 0) {
      candidates_.push_back(current_[i].expert);
    }
  }
  const size_t count = std::min(count_max, candidates_.size());
  const std::span<const float> scores = heat_->scores(row_);
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                    candidates_.end(), [&](uint32_t a, uint32_t b) {
                      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
                    });
  return count;
}

bool PooledPolicy::Admits(float candidate, float victim) const {
  return candidate > admission_.ratio * victim && candidate > victim + admission_.hysteresis;
}

// The coldest victim for a candidate of `row`: of that layer, or of one that has more than its
// minimum; with `elsewhere` not of that layer.
PooledPolicy::Position PooledPolicy::FindVictim(uint32_t row, bool elsewhere) {
  Position victim;
  float least = kInfinity;
  for (uint32_t r = 0; r < layers_.size(); ++r) {
    if (r == row ? elsewhere : level_[r] <= layer_slots_min_) continue;
    if (stale_[r] != 0) {
      coldest_[r] = FindColdest(heat_->scores(r), BarredOf(r));
      stale_[r] = 0;
    }
    if (coldest_[r].score < least) {
      least = coldest_[r].score;
      victim = {r, coldest_[r].expert};
    }
  }
  return victim;
}

size_t PooledPolicy::Propose(std::span<Swap> out) {
  const uint32_t taken = resident_count_ + growth_count_;
  if (row_ == kNone || resident_count_ > slot_count_) return 0;
  uint32_t free_count = taken < slot_count_ ? slot_count_ - taken : 0;
  const size_t candidate_count = CollectCandidates(out.size());
  uint32_t level = level_[row_];
  proposed_victims_.clear();
  size_t count = 0;
  for (; count < candidate_count; ++count) {
    const Position in{row_, candidates_[count]};
    if (free_count > 0) {
      out[count] = {.in = KeyOf(in), .out = ExpertKey()};
      --free_count;
      ++level;
      continue;
    }
    if (!admission_.evicts) break;
    Position victim;
    if (level < layer_slots_min_) victim = FindVictim(row_, /*elsewhere=*/true);
    if (victim.row == kNone) {
      victim = FindVictim(row_, /*elsewhere=*/false);
      if (victim.row == kNone || !Admits(ScoreOf(in), ScoreOf(victim))) break;
    }
    out[count] = {KeyOf(in), KeyOf(victim)};
    Bar(victim);
    if (victim.row != row_) {
      ++level;
      --level_[victim.row];
    }
    proposed_victims_.push_back(victim);
  }
  for (const Position victim : proposed_victims_) {
    if (victim.row != row_) ++level_[victim.row];
    Unbar(victim);
  }
  return count;
}

void PooledPolicy::EndWindow(uint32_t token_count) {
  heat_->Age(prompt_ ? double{kPromptWeight} * token_count : token_count);
  for (const Position p : current_) {
    FlagsOf(p) &= static_cast<uint8_t>(~kCurrent);
    barred_[IndexOf(p)] = FlagsOf(p) == kResident ? 0 : kInfinity;
  }
  std::ranges::fill(stale_, uint8_t{1});
  current_.clear();
  row_ = kNone;
  row_begin_ = 0;
  prompt_ = false;
}

void PooledPolicy::Begin(const Swap& swap) {
  const Position in = Locate(swap.in);
  HEARTH_CHECK(in.row != kNone && (FlagsOf(in) & (kResident | kIncoming)) == 0);
  FlagsOf(in) |= kIncoming;
  if (!swap.out.layer.valid()) {
    ++growth_count_;
    return;
  }
  const Position out = Locate(swap.out);
  HEARTH_CHECK(out.row != kNone && (FlagsOf(out) & (kResident | kOutgoing)) == kResident);
  FlagsOf(out) |= kOutgoing;
  if (out.row != in.row) {
    FlagsOf(out) |= kOutgoingAcross;
    --level_[out.row];
  }
  Refresh(out);
}

void PooledPolicy::Land(const Swap& swap) {
  const Position in = Locate(swap.in);
  HEARTH_CHECK(in.row != kNone && (FlagsOf(in) & kIncoming) != 0);
  FlagsOf(in) = static_cast<uint8_t>((FlagsOf(in) & ~kIncoming) | kResident);
  ++resident_count_;
  ++level_[in.row];
  Refresh(in);
  if (!swap.out.layer.valid()) {
    --growth_count_;
    return;
  }
  const Position out = Locate(swap.out);
  HEARTH_CHECK(out.row != kNone && (FlagsOf(out) & kOutgoing) != 0);
  if ((FlagsOf(out) & kResident) != 0) {
    --resident_count_;
    if ((FlagsOf(out) & kOutgoingAcross) == 0) --level_[out.row];
  } else {
    --growth_count_;  // Remove() had made it one
  }
  FlagsOf(out) &= static_cast<uint8_t>(~(kResident | kOutgoing | kOutgoingAcross));
  Refresh(out);
}

void PooledPolicy::Cancel(const Swap& swap) {
  const Position in = Locate(swap.in);
  HEARTH_CHECK(in.row != kNone && (FlagsOf(in) & kIncoming) != 0);
  FlagsOf(in) &= static_cast<uint8_t>(~kIncoming);
  if (!swap.out.layer.valid()) {
    --growth_count_;
    return;
  }
  const Position out = Locate(swap.out);
  HEARTH_CHECK(out.row != kNone && (FlagsOf(out) & kOutgoing) != 0);
  if ((FlagsOf(out) & kResident) == 0) {
    --growth_count_;
  } else if ((FlagsOf(out) & kOutgoingAcross) != 0) {
    ++level_[out.row];
  }
  FlagsOf(out) &= static_cast<uint8_t>(~(kOutgoing | kOutgoingAcross));
  Refresh(out);
}

void PooledPolicy::Remove(ExpertKey key) {
  const Position p = Locate(key);
  HEARTH_CHECK(p.row != kNone && (FlagsOf(p) & kResident) != 0);
  --resident_count_;
  if ((FlagsOf(p) & kOutgoingAcross) == 0) --level_[p.row];
  if ((FlagsOf(p) & kOutgoing) != 0) ++growth_count_;
  FlagsOf(p) &= static_cast<uint8_t>(~kResident);
  Refresh(p);
}

bool PooledPolicy::resident(ExpertKey key) const {
  const Position p = Locate(key);
  return p.row != kNone && (flags_[IndexOf(p)] & kResident) != 0;
}

void PooledPolicy::Seed(LayerId layer, std::span<const float> sightings) {
  const Position first = Locate({layer, ExpertId(0)});
  HEARTH_CHECK(first.row != kNone);
  HEARTH_CHECK(sightings.size() == expert_count_);
  heat_->Seed(first.row, sightings);
  stale_[first.row] = 1;
}

float PooledPolicy::Heat(ExpertKey key) const {
  const Position p = Locate(key);
  return p.row == kNone ? 0 : std::max(ScoreOf(p), 0.0f);
}

void PooledPolicy::Resize(uint32_t slot_count) {
  slot_count_ = slot_count;
  const auto rows = static_cast<uint32_t>(layers_.size());
  layer_slots_min_ = std::min(layer_slots_min_, rows == 0 ? 0 : slot_count / rows);
}

ExpertKey PooledPolicy::Coldest() const {
  float least = kInfinity;
  ExpertKey key;
  for (uint32_t r = 0; r < layers_.size(); ++r) {
    if (level_[r] <= layer_slots_min_) continue;
    const hearth::Coldest coldest = FindColdest(heat_->scores(r), BarredOf(r));
    if (coldest.score >= least) continue;
    least = coldest.score;
    key = {layers_[r], ExpertId(coldest.expert)};
  }
  return key;
}

}  // namespace

HeatShape HeatShapeOf(const PoolShape& shape) {
  return {static_cast<uint32_t>(shape.layers.size()), shape.expert_count};
}

std::unique_ptr<ResidencyPolicy> MakePooledPolicy(std::string name, const PoolShape& shape,
                                                  const Admission& admission,
                                                  std::unique_ptr<HeatModel> heat) {
  return std::make_unique<PooledPolicy>(std::move(name), shape, admission, std::move(heat));
}

}  // namespace hearth
