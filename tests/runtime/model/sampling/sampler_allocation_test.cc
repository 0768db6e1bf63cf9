// Decoding allocates nothing per token: this file counts every operator new of the executable.
// Under AddressSanitizer, which has an operator new of its own, the count is not taken.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/model/sampling/acceptance.h"
#include "runtime/model/sampling/sampler.h"
#include "tests/runtime/model/sampling/scripted_model.h"

namespace {
std::atomic<uint64_t> allocation_count{0};
}  // namespace

#if defined(__SANITIZE_ADDRESS__)
#define HEARTH_COUNTS_ALLOCATIONS 0
#else
#define HEARTH_COUNTS_ALLOCATIONS 1
// Not inlined, so that the compiler does not pair a visible malloc with a delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace hearth {
namespace {

constexpr uint32_t kVocab = 10000;

uint64_t AllocationsOfDecoding(const SamplingParams& params) {
  absl::StatusOr<Sampler> sampler = Sampler::Create(
      {.params = params, .vocab_count = kVocab, .stop_tokens = {0}, .token_count_reserve = 200});
  EXPECT_TRUE(sampler.ok());
  const std::vector<TokenId> prompt(20, 7);
  EXPECT_TRUE(sampler->SetPrompt(prompt).ok());
  const ScriptedModel model({.vocab_count = kVocab, .seed = 5});
  const std::vector<std::vector<float>> rows = {model.Logits({}), model.Logits(prompt)};
  const std::vector<std::span<const float>> logits = {rows[0], rows[1]};
  const std::vector<TokenId> drafts = {3};
  std::vector<TokenId> emitted(2);
  const uint64_t before = allocation_count.load();
  for (int i = 0; i < 20; ++i) {
    const auto accepted =
        AcceptWindow({.logits = logits, .drafts = drafts, .token_budget = 100}, *sampler, emitted);
    if (!accepted.ok()) return UINT64_MAX;
  }
  return allocation_count.load() - before;
}

TEST(SamplerAllocation, TheCounterCounts) {
  if (!HEARTH_COUNTS_ALLOCATIONS) GTEST_SKIP() << "AddressSanitizer owns operator new";
  const uint64_t before = allocation_count.load();
  delete new std::vector<int>(3);
  EXPECT_GE(allocation_count.load(), before + 1);
}

TEST(SamplerAllocation, NonePerTokenInAnyMode) {
  if (!HEARTH_COUNTS_ALLOCATIONS) GTEST_SKIP() << "AddressSanitizer owns operator new";
  SamplingParams params;
  EXPECT_EQ(AllocationsOfDecoding(params), 0u);
  params.repetition_penalty = 1.2f;
  params.frequency_penalty = 1;
  params.min_tokens = 5;
  EXPECT_EQ(AllocationsOfDecoding(params), 0u);
  params.temperature = 0.9f;
  EXPECT_EQ(AllocationsOfDecoding(params), 0u);
  params.top_k = 20;
  EXPECT_EQ(AllocationsOfDecoding(params), 0u);
  params.top_k = 5000;
  EXPECT_EQ(AllocationsOfDecoding(params), 0u);
  params.top_k = 0;
  params.top_p = 0.999f;
  EXPECT_EQ(AllocationsOfDecoding(params), 0u);
}

}  // namespace
}  // namespace hearth
