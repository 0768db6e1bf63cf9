#include "cache/policy/synthetic_trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

// Close to the normal distribution, mean 0 and deviation 1: the sum of four uniform numbers of 16
// bits each. Within 3.5; cheaper than an exact one.
float Bell(uint64_t bits) {
  const uint64_t sum =
      (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
  constexpr float kScale = 1.7320508f / 65536;  // the sum's deviation is 65,536 / sqrt(3)
  return (static_cast<float>(sum) - 131070.0f) * kScale;
}

// One layer's scores, moved on token by token.
class LayerScores {
 public:
  LayerScores(const SyntheticRouting& routing, uint32_t expert_count, uint64_t seed)
      : routing_(routing),
        topic_keep_(std::exp(-1.0f / routing.topic_tokens)),
        topic_step_(routing.topic * std::sqrt(1 - topic_keep_ * topic_keep_)),
        seed_(seed),
        prng_(seed),
        base_(expert_count),
        document_(expert_count),
        topic_(expert_count),
        scores_(expert_count) {
    for (float& x : base_) x = routing.base * Bell(prng_.Next());
    for (float& x : topic_) x = routing.topic * Bell(prng_.Next());
  }

  void BeginDocument() {
    for (float& x : document_) x = routing_.document * Bell(prng_.Next());
  }

  std::span<const float> Next(uint64_t token_identity) {
    const uint64_t identity = SplitMix64(seed_ ^ SplitMix64(token_identity));
    for (size_t e = 0; e < scores_.size(); ++e) {
      topic_[e] = topic_keep_ * topic_[e] + topic_step_ * Bell(prng_.Next());
      scores_[e] = base_[e] + document_[e] + topic_[e] +
                   routing_.token * Bell(SplitMix64(identity + e)) +
                   routing_.noise * Bell(prng_.Next());
    }
    return scores_;
  }

 private:
  const SyntheticRouting routing_;
  const float topic_keep_;
  const float topic_step_;
  const uint64_t seed_;
  Prng prng_;
  std::vector<float> base_;
  std::vector<float> document_;
  std::vector<float> topic_;
  std::vector<float> scores_;
};

// Identities in proportion to 1 / (rank + 3).
class IdentityStream {
 public:
  IdentityStream(uint32_t vocabulary, uint64_t seed) : prng_(seed) {
    double sum = 0;
    for (uint32_t i = 0; i < vocabulary; ++i) cumulated_.push_back(sum += 1.0 / (i + 3));
  }
  uint64_t Next() {
    const double at = prng_.Uniform() * cumulated_.back();
    const auto found = std::ranges::upper_bound(cumulated_, at);
    return std::min<uint64_t>(static_cast<uint64_t>(found - cumulated_.begin()),
                              cumulated_.size() - 1);
  }

 private:
  Prng prng_;
  std::vector<double> cumulated_;
};

}  // namespace

SyntheticRouting DiffuseRouting() {
  return {.base = 0.208f,
          .document = 0.16f,
          .topic = 0.269f,
          .token = 0.915f,
          .noise = 0.144f,
          .topic_tokens = 58,
          .document_tokens = 600};
}

SyntheticRouting StickyRouting() {
  return {.base = 0.16f,
          .document = 0.082f,
          .topic = 0.768f,
          .token = 0.559f,
          .noise = 0.254f,
          .topic_tokens = 24,
          .document_tokens = 600};
}

RouteTrace MakeSyntheticTrace(const SyntheticRouting& routing, const SyntheticTraceShape& shape) {
  HEARTH_CHECK(shape.ranks > 0 && shape.ranks <= shape.expert_count);
  HEARTH_CHECK(shape.expert_count <= 65536);
  HEARTH_CHECK(routing.document_tokens > 0 && routing.vocabulary > 0 && routing.topic_tokens > 0);
  RouteTrace trace{.identity = {.layer_count = shape.layer_count,
                                .expert_count = shape.expert_count,
                                .ranks = shape.ranks}};
  const size_t per_token = size_t{shape.layer_count} * shape.ranks;
  trace.routes.resize(shape.token_count * per_token);
  for (uint64_t t = 0; t < shape.token_count; t += routing.document_tokens) {
    trace.text_begins.push_back(t);
  }
  std::vector<uint16_t> order(shape.expert_count);
  for (uint32_t l = 0; l < shape.layer_count; ++l) {
    LayerScores layer(routing, shape.expert_count, SplitMix64(shape.seed * 4096 + l));
    IdentityStream identities(routing.vocabulary, shape.seed);  // the same text in every layer
    for (uint64_t t = 0; t < shape.token_count; ++t) {
      if (t % routing.document_tokens == 0) layer.BeginDocument();
      const std::span<const float> scores = layer.Next(identities.Next());
      std::iota(order.begin(), order.end(), uint16_t{0});
      const auto end = order.begin() + shape.ranks;
      std::partial_sort(order.begin(), end, order.end(), [&](uint16_t a, uint16_t b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
      });
      std::copy(order.begin(), end,
                trace.routes.begin() + static_cast<ptrdiff_t>(t * per_token + l * shape.ranks));
    }
  }
  return trace;
}

}  // namespace hearth
