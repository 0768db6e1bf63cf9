#include "runtime/model/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/model/sampling/weighing.h"

namespace hearth {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Up to here one pass with a heap of the best beats selecting among all.
constexpr uint32_t kHeapCountMax = 4096;
// top_p alone looks at this many of the largest first: on real text 0.95 is reached within them.
constexpr uint32_t kTopPCountFirst = 256;
constexpr uint32_t kTopPGrowth = 16;

// An integer that orders as (logit, then lower id) do; -0 counts as +0.
uint64_t RankKey(float logit, uint32_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (uint64_t{ordered} << 32) | ~id;
}
uint32_t IdOfKey(uint64_t key) { return ~static_cast<uint32_t>(key); }

bool SortsCandidates(const SamplingParams& p) { return p.top_k != 0 || p.top_p < 1; }

bool CountsTokens(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.frequency_penalty != 0 || p.presence_penalty != 0;
}

bool AdjustsLogits(const SamplerConfig& config) {
  const SamplingParams& p = config.params;
  return CountsTokens(p) || !p.logit_bias.empty() ||
         (p.min_tokens != 0 && !config.stop_tokens.empty());
}

absl::Status CheckTokens(std::span<const TokenId> tokens, uint32_t vocab_count,
                         std::string_view what) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (static_cast<uint32_t>(tokens[i]) < vocab_count) continue;
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), " ", i, " is token ", tokens[i],
                                                   ", accepted is 0 to ", vocab_count - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(SamplerConfig config) {
  if (config.vocab_count == 0 || config.vocab_count > uint32_t{INT32_MAX}) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_count is ", config.vocab_count, ", accepted is 1 to ", INT32_MAX));
  }
  HEARTH_RETURN_IF_ERROR(config.params.Validate(config.vocab_count));
  HEARTH_RETURN_IF_ERROR(CheckTokens(config.stop_tokens, config.vocab_count, "stop token"));
  return Sampler(std::move(config));
}

Sampler::Sampler(SamplerConfig config)
    : config_(std::move(config)),
      history_({.vocab_count = config_.vocab_count,
                .token_count_reserve = config_.token_count_reserve,
                .count_tokens = CountsTokens(config_.params)}) {
  const SamplingParams& p = config_.params;
  const uint32_t vocab = config_.vocab_count;
  adjusts_ = AdjustsLogits(config_);
  if (adjusts_ || config_.constraint != nullptr) adjusted_.resize(vocab);
  if (p.greedy()) {
    candidates_.reserve(1);
    return;
  }
  const bool few = p.top_k != 0 && p.top_k <= kHeapCountMax;
  if (SortsCandidates(p)) selected_.reserve(few ? p.top_k : vocab);
  candidates_.reserve(few ? p.top_k : vocab);
}

absl::Status Sampler::SetPrompt(std::span<const TokenId> prompt) {
  HEARTH_RETURN_IF_ERROR(CheckTokens(prompt, config_.vocab_count, "prompt position"));
  history_.Reset(prompt);
  if (config_.constraint != nullptr) config_.constraint->PopTo(0);
  return absl::OkStatus();
}

void Sampler::Push(TokenId token) {
  history_.Push(token);
  if (config_.constraint != nullptr) config_.constraint->Push(token);
}

void Sampler::PopTo(uint32_t token_count) {
  history_.PopTo(token_count);
  if (config_.constraint != nullptr) config_.constraint->PopTo(history_.output_count());
}

bool Sampler::IsStopToken(TokenId token) const {
  return std::find(config_.stop_tokens.begin(), config_.stop_tokens.end(), token) !=
         config_.stop_tokens.end();
}

void Sampler::Forbid(std::span<const uint64_t> allowed) {
  const uint32_t vocab = config_.vocab_count;
  HEARTH_CHECK(allowed.size() * 64 >= vocab);
  for (uint32_t first = 0; first < vocab; first += 64) {
    const uint64_t word = allowed[first / 64];
    if (word == ~uint64_t{0}) continue;
    const uint32_t count = std::min(64u, vocab - first);
    for (uint32_t i = 0; i < count; ++i) {
      if ((word >> i & 1) == 0) adjusted_[first + i] = kNegativeInfinity;
    }
  }
}

bool Sampler::AllowsOnlyStopTokens(std::span<const uint64_t> allowed) const {
  if (allowed.empty()) return false;
  uint32_t others = 0;
  for (const uint64_t word : allowed) others += static_cast<uint32_t>(std::popcount(word));
  for (const TokenId t : config_.stop_tokens) {
    others -= static_cast<uint32_t>(allowed[static_cast<uint32_t>(t) / 64] >> (t % 64) & 1);
  }
  return others == 0;
}

std::span<const float> Sampler::Adjust(std::span<const float> logits) {
  HEARTH_CHECK(logits.size() == config_.vocab_count);
  std::span<const uint64_t> allowed;
  if (config_.constraint != nullptr) allowed = config_.constraint->Allowed();
  if (!adjusts_ && allowed.empty()) return logits;
  const SamplingParams& p = config_.params;
  const auto at = [this](TokenId t) -> float& { return adjusted_[static_cast<uint32_t>(t)]; };
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  if (!allowed.empty()) Forbid(allowed);
  for (const LogitBias& entry : p.logit_bias) at(entry.token) += entry.bias;
  if (p.repetition_penalty != 1) {
    for (const TokenId t : history_.distinct_tokens()) {
      const float x = at(t);
      at(t) = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    }
  }
  if (p.frequency_penalty != 0 || p.presence_penalty != 0) {
    for (const TokenId t : history_.distinct_output_tokens()) {
      const auto occurrences = static_cast<float>(history_.output_occurrences(t));
      at(t) -= p.frequency_penalty * occurrences + p.presence_penalty;
    }
  }
  if (history_.output_count() < p.min_tokens && !AllowsOnlyStopTokens(allowed)) {
    for (const TokenId t : config_.stop_tokens) at(t) = kNegativeInfinity;
  }
  return adjusted_;
}

absl::StatusOr<float> Sampler::LargestLogit(std::span<const float> logits) const {
  constexpr size_t kLanes = 16;  // independent maxima: the loop is bound by loads, not by compares
  std::array<float, kLanes> best;
  best.fill(kNegativeInfinity);
  std::array<uint32_t, kLanes> bad{};
  const auto visit = [&](size_t lane, float x) {
    best[lane] = x > best[lane] ? x : best[lane];
    bad[lane] |= x <= std::numeric_limits<float>::max() ? 0u : 1u;  // NaN or +inf
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) visit(lane, logits[i + lane]);
  }
  for (; i < logits.size(); ++i) visit(0, logits[i]);
  const float largest = *std::max_element(best.begin(), best.end());
  if (std::count(bad.begin(), bad.end(), 0u) == kLanes && largest > kNegativeInfinity) {
    return largest;
  }
  for (size_t t = 0; t < logits.size(); ++t) {
    if (logits[t] <= std::numeric_limits<float>::max()) continue;
    return absl::DataLossError(absl::StrCat("logit of token ", t, " at position ",
                                            history_.token_count(), " is ", logits[t],
                                            ", expected a finite number"));
  }
  return absl::DataLossError(absl::StrCat("every logit at position ", history_.token_count(),
                                          " is -inf, expected one finite number at least"));
}

absl::StatusOr<TokenId> Sampler::Greedy(std::span<const float> adjusted) const {
  HEARTH_ASSIGN_OR_RETURN(const float largest, LargestLogit(adjusted));
  return static_cast<TokenId>(std::find(adjusted.begin(), adjusted.end(), largest) -
                              adjusted.begin());
}

void Sampler::SelectLargest(std::span<const float> logits, uint32_t count) {
  const auto vocab = static_cast<uint32_t>(logits.size());
  count = std::min(count, vocab);
  selected_.clear();
  if (count > kHeapCountMax || count == vocab) {
    for (uint32_t id = 0; id < vocab; ++id) selected_.push_back(RankKey(logits[id], id));
    if (count < vocab) {
      std::nth_element(selected_.begin(), selected_.begin() + count, selected_.end(),
                       std::greater<>());
      selected_.resize(count);
    }
    std::sort(selected_.begin(), selected_.end(), std::greater<>());
    return;
  }
  // A heap whose front is the smallest kept. Ids rise, so an equal logit never displaces one kept.
  uint32_t id = 0;
  for (; id < count; ++id) selected_.push_back(RankKey(logits[id], id));
  std::make_heap(selected_.begin(), selected_.end(), std::greater<>());
  float floor = logits[IdOfKey(selected_.front())];
  for (; id < vocab; ++id) {
    if (!(logits[id] > floor)) continue;
    std::pop_heap(selected_.begin(), selected_.end(), std::greater<>());
    selected_.back() = RankKey(logits[id], id);
    std::push_heap(selected_.begin(), selected_.end(), std::greater<>());
    floor = logits[IdOfKey(selected_.front())];
  }
  std::sort_heap(selected_.begin(), selected_.end(), std::greater<>());
}

void Sampler::AppendSelected(std::span<const float> logits, float largest) {
  const Weighing weighing(largest, config_.params.temperature);
  candidates_.clear();
  for (const uint64_t key : selected_) {
    const uint32_t id = IdOfKey(key);
    const double weight = weighing.Weight(logits[id]);
    if (weight == 0) break;  // and so are all that follow
    candidates_.push_back({.token = static_cast<TokenId>(id), .probability = weight});
  }
}

bool Sampler::KeepPrefix(double weight) {
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += candidates_[i].probability;
    if (sum < weight) continue;
    candidates_.resize(i + 1);
    return true;
  }
  return false;
}

double Sampler::KeepMinP() {
  const double weight_min = config_.params.min_p;  // the largest weight is exactly 1
  double sum = 0;
  size_t kept = 0;
  for (const TokenProbability& candidate : candidates_) {
    if (candidate.probability < weight_min) continue;
    sum += candidate.probability;
    candidates_[kept++] = candidate;
  }
  candidates_.resize(kept);
  return sum;
}

double Sampler::WeighSelected() {
  if (config_.params.top_p < 1) {
    double total = 0;
    for (const TokenProbability& candidate : candidates_) total += candidate.probability;
    KeepPrefix(config_.params.top_p * total);
  }
  return KeepMinP();
}

double Sampler::WeighTopK(std::span<const float> adjusted, float largest) {
  SelectLargest(adjusted, config_.params.top_k);
  AppendSelected(adjusted, largest);
  return WeighSelected();
}

double Sampler::WeighTopP(std::span<const float> adjusted, float largest) {
  double total = 0;
  const Weighing weighing(largest, config_.params.temperature);
  weighing.ForEach(adjusted, [&](size_t, double weight) { total += weight; });
  const auto vocab = static_cast<uint32_t>(adjusted.size());
  for (uint64_t count = kTopPCountFirst;; count *= kTopPGrowth) {
    SelectLargest(adjusted, static_cast<uint32_t>(std::min<uint64_t>(count, vocab)));
    AppendSelected(adjusted, largest);
    // When rounding keeps even the whole vocabulary from reaching top_p, all of it stays.
    if (KeepPrefix(config_.params.top_p * total) || count >= vocab) break;
  }
  return KeepMinP();
}

double Sampler::WeighAll(std::span<const float> adjusted, float largest) {
  const double weight_min = config_.params.min_p;
  double sum = 0;
  candidates_.clear();
  const Weighing weighing(largest, config_.params.temperature);
  weighing.ForEach(adjusted, [&](size_t id, double weight) {
    if (weight == 0 || weight < weight_min) return;
    candidates_.push_back({.token = static_cast<TokenId>(id), .probability = weight});
    sum += weight;
  });
  return sum;
}

double Sampler::Weigh(std::span<const float> adjusted, float largest) {
  if (config_.params.top_k != 0) return WeighTopK(adjusted, largest);
  if (config_.params.top_p < 1) return WeighTopP(adjusted, largest);
  return WeighAll(adjusted, largest);
}

absl::StatusOr<TokenId> Sampler::Sample(std::span<const float> logits) {
  const std::span<const float> adjusted = Adjust(logits);
  if (config_.params.greedy()) return Greedy(adjusted);
  HEARTH_ASSIGN_OR_RETURN(const float largest, LargestLogit(adjusted));
  const double sum = Weigh(adjusted, largest);
  return Draw(sum);
}

TokenId Sampler::Draw(double sum) const {
  const double target = sum * CounterUniform(config_.params.seed, history_.token_count(), 0);
  double running = 0;
  for (const TokenProbability& candidate : candidates_) {
    running += candidate.probability;
    if (running > target) return candidate.token;
  }
  return candidates_.back().token;
}

uint32_t Sampler::largest_needed() const {
  if (!adjusted_.empty()) return 0;
  return config_.params.greedy() ? 1 : std::min(config_.params.top_k, config_.vocab_count);
}

TokenId Sampler::SampleLargest(std::span<const TopLogit> largest) {
  HEARTH_CHECK(!largest.empty() && largest.size() == largest_needed());
  if (config_.params.greedy()) return largest[0].token;
  const Weighing weighing(largest[0].logit, config_.params.temperature);
  candidates_.clear();
  for (const TopLogit& top : largest) {
    const double weight = weighing.Weight(top.logit);
    if (weight == 0) break;  // and so are all that follow
    candidates_.push_back({.token = top.token, .probability = weight});
  }
  return Draw(WeighSelected());
}

absl::StatusOr<std::span<const TokenProbability>> Sampler::Distribution(
    std::span<const float> logits) {
  const std::span<const float> adjusted = Adjust(logits);
  if (config_.params.greedy()) {
    HEARTH_ASSIGN_OR_RETURN(const TokenId token, Greedy(adjusted));
    candidates_.assign(1, {.token = token, .probability = 1});
    return candidates_;
  }
  HEARTH_ASSIGN_OR_RETURN(const float largest, LargestLogit(adjusted));
  const double sum = Weigh(adjusted, largest);
  for (TokenProbability& candidate : candidates_) candidate.probability /= sum;
  return candidates_;
}

}  // namespace hearth
