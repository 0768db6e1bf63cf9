// Time to choose one token from a vocabulary of 248,320. The floor is one pass over the logits,
// 0.95 MiB; each line reports the bytes of that pass over its time, which is also what bounds
// greedy decoding.
#include <cmath>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/base/prng.h"
#include "runtime/model/sampling/sampler.h"

namespace hearth {
namespace {

constexpr uint32_t kVocabCount = 248320;

// Noise of standard deviation 2.3 (a sum of uniforms), and a few tokens that stand out as in text.
std::vector<float> TextLikeLogits() {
  Prng prng(1);
  std::vector<float> logits(kVocabCount);
  for (float& x : logits) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += prng.Uniform();
    x = static_cast<float>(2.3 * sum);
  }
  for (uint32_t i = 0; i < 30; ++i) {
    logits[prng.Below(kVocabCount)] = 21 - 0.35f * static_cast<float>(i);
  }
  return logits;
}

std::vector<float> FlatLogits() {
  Prng prng(2);
  std::vector<float> logits(kVocabCount);
  for (float& x : logits) x = static_cast<float>(prng.Uniform());
  return logits;
}

void RunSampler(benchmark::State& state, const SamplingParams& params,
                const std::vector<float>& logits) {
  absl::StatusOr<Sampler> sampler = Sampler::Create(
      {.params = params, .vocab_count = kVocabCount, .token_count_reserve = 1u << 20});
  if (!sampler.ok()) {
    state.SkipWithError("create");
    return;
  }
  Prng prng(3);
  std::vector<TokenId> prompt(4096);
  for (TokenId& t : prompt) t = static_cast<TokenId>(prng.Below(kVocabCount));
  if (!sampler->SetPrompt(prompt).ok()) state.SkipWithError("prompt");
  for (auto _ : state) {
    const absl::StatusOr<TokenId> token = sampler->Sample(logits);
    if (!token.ok()) {
      state.SkipWithError("sample");
      return;
    }
    if (sampler->history().token_count() < (1u << 20)) sampler->Push(*token);
  }
  state.SetBytesProcessed(state.iterations() * int64_t{kVocabCount} * 4);
}

void Greedy(benchmark::State& state) { RunSampler(state, {}, TextLikeLogits()); }
void GreedyWithPenalties(benchmark::State& state) {
  RunSampler(state, {.repetition_penalty = 1.1f, .presence_penalty = 1}, TextLikeLogits());
}
void TopK20TopP95(benchmark::State& state) {
  RunSampler(state, {.temperature = 1, .top_k = 20, .top_p = 0.95f}, TextLikeLogits());
}
void TopK20WithPenalties(benchmark::State& state) {
  RunSampler(state, {.temperature = 1, .top_k = 20, .repetition_penalty = 1.1f}, TextLikeLogits());
}
void TopP95OfText(benchmark::State& state) {
  RunSampler(state, {.temperature = 1, .top_p = 0.95f}, TextLikeLogits());
}
void TopP95OfFlat(benchmark::State& state) {
  RunSampler(state, {.temperature = 1, .top_p = 0.95f}, FlatLogits());
}
void MinPOnly(benchmark::State& state) {
  RunSampler(state, {.temperature = 1, .min_p = 0.05f}, TextLikeLogits());
}
void TemperatureOnly(benchmark::State& state) {
  RunSampler(state, {.temperature = 1}, TextLikeLogits());
}
BENCHMARK(Greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(GreedyWithPenalties)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopK20TopP95)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopK20WithPenalties)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopP95OfText)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopP95OfFlat)->Unit(benchmark::kMicrosecond);
BENCHMARK(MinPOnly)->Unit(benchmark::kMicrosecond);
BENCHMARK(TemperatureOnly)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hearth

BENCHMARK_MAIN();
