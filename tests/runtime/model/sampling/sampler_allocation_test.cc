// Choosing tokens allocates nothing after the first window.
#include <vector>

#include <gtest/gtest.h>

#include "runtime/model/sampling/acceptance.h"
#include "runtime/model/sampling/sampler.h"
#include "tests/runtime/model/sampling/scripted_model.h"
#include "tests/support/allocation_count.h"

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
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 20; ++i) {
    const auto accepted =
        AcceptWindow({.logits = logits, .drafts = drafts, .token_budget = 100}, *sampler, emitted);
    if (!accepted.ok()) return UINT64_MAX;
  }
  return AllocationCount() - before;
}

TEST(SamplerAllocation, TheCounterCounts) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer owns operator new";
  const uint64_t before = AllocationCount();
  std::vector<int>* volatile kept =
      new std::vector<int>(3);  // volatile: clang elides a pair it sees
  delete kept;
  EXPECT_GE(AllocationCount(), before + 1);
}

TEST(SamplerAllocation, NonePerTokenInAnyMode) {
  if (!kCountsAllocations) GTEST_SKIP() << "AddressSanitizer owns operator new";
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
