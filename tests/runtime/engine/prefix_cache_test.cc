// The prefix cache on a model of a sequence: what it restores is what reading gives, whatever was
// read before, whatever was evicted, and whoever asked.
#include "runtime/engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/prng.h"
#include "tests/runtime/engine/prefix_reading.h"

namespace hearth {
namespace {

constexpr uint64_t kPage = 4096;

TEST(PrefixCache, ConversationIsReadOnce) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage, .spacing_tokens = 1000});
  Tokens prompt = Range(0, 40);
  std::vector<uint32_t> reused;
  for (int turn = 0; turn < 4; ++turn) {
    const Cuts cuts = EveryCut(prompt.size(), 10);
    const PrefixQuery query{.tokens = prompt, .cuts = cuts, .drafts = true};
    const Reading with = ReadPrompt(&cache, query);
    const Reading without = ReadPrompt(nullptr, query);
    EXPECT_EQ(with.sequence, without.sequence);
    EXPECT_EQ(with.sequence.draft_values, without.sequence.draft_values);
    reused.push_back(with.reused);
    prompt = Join(prompt, Range(100 * turn + 100, 25));
  }
  EXPECT_EQ(reused, (std::vector<uint32_t>{0, 30, 60, 80})) << "up to the last cut before the end";
  const PrefixCacheStats stats = cache.stats();
  EXPECT_EQ(stats.lookups, 4u);
  EXPECT_EQ(stats.hits, 3u);
  EXPECT_EQ(stats.tokens_reused, 170u);
  EXPECT_EQ(stats.images, 4u);
  EXPECT_EQ(stats.evictions, 0u);
}

TEST(PrefixCache, KeysAndValuesOfAConversationAreHeldOnce) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 1 << 30, .spacing_tokens = 512});
  const Tokens prompt = Range(0, 512 * 20 + 1);
  const Cuts cuts = EveryCut(prompt.size(), 512);
  ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts});
  const PrefixCacheStats stats = cache.stats();
  EXPECT_EQ(stats.images, 20u);
  // A page for each span of 512 tokens and for each fixed part; lists and nodes are the rest.
  EXPECT_GE(stats.bytes, 20 * 2 * kPage + 10240 * 2 * sizeof(TokenId));
  EXPECT_LE(stats.bytes, 20 * 2 * kPage + 10240 * 2 * sizeof(TokenId) + 20 * 600);
  cache.Clear();
  EXPECT_EQ(cache.stats().bytes, 0u);
  EXPECT_EQ(cache.stats().images, 0u);
}

TEST(PrefixCache, OneTokenAtLeastIsLeftToRead) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage});
  const Tokens prompt = Range(0, 31);
  const Cuts cuts = EveryCut(31, 10);
  ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts});
  EXPECT_EQ(ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts}).reused, 30u);
  // The same tokens up to the image's end and no further.
  const Tokens shorter = Range(0, 30);
  const Cuts shorter_cuts = EveryCut(30, 10);
  EXPECT_EQ(ReadPrompt(&cache, {.tokens = shorter, .cuts = shorter_cuts}).reused, 0u);
  EXPECT_FALSE(cache.Find({}).has_value());
}

TEST(PrefixCache, OtherCutsAreOtherStates) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage, .spacing_tokens = 1});
  const Tokens prompt = Range(0, 61);
  const Cuts tens = EveryCut(61, 10), fifteens = EveryCut(61, 15), mixed = {10, 30, 40, 61};
  ReadPrompt(&cache, {.tokens = prompt, .cuts = tens});
  EXPECT_EQ(ReadPrompt(&cache, {.tokens = prompt, .cuts = fifteens}).reused, 0u)
      << "30 and 60 are cuts of both, but not what lies between";
  EXPECT_EQ(ReadPrompt(&cache, {.tokens = prompt, .cuts = mixed}).reused, 10u);
  EXPECT_EQ(ReadPrompt(&cache, {.tokens = prompt, .cuts = mixed}).reused, 40u);
}

TEST(PrefixCache, SaltsAreNameSpaces) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage});
  const Tokens prompt = Range(0, 21);
  const Cuts cuts = EveryCut(21, 10);
  const auto reused = [&](std::string_view salt) {
    return ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts, .salt = salt}).reused;
  };
  EXPECT_EQ(reused("alice"), 0u);
  EXPECT_EQ(reused("bob"), 0u);
  EXPECT_EQ(reused(""), 0u);
  EXPECT_EQ(reused("alic"), 0u);
  EXPECT_EQ(reused(std::string_view("alice\0", 6)), 0u);
  EXPECT_EQ(reused("alice"), 20u);
  EXPECT_EQ(reused(""), 20u);
}

TEST(PrefixCache, DraftsNeedImagesThatHaveThem) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage, .spacing_tokens = 10});
  const Tokens prompt = Range(0, 41);
  const Cuts cuts = EveryCut(41, 10);
  const auto read = [&](bool drafts) {
    const PrefixQuery query{.tokens = prompt, .cuts = cuts, .drafts = drafts};
    const Reading with = ReadPrompt(&cache, query);
    const Reading without = ReadPrompt(nullptr, query);
    EXPECT_EQ(with.sequence, without.sequence);
    if (drafts) {
      EXPECT_EQ(with.sequence.draft_values, without.sequence.draft_values);
    }
    return with.reused;
  };
  EXPECT_EQ(read(false), 0u);
  EXPECT_EQ(read(true), 0u) << "nothing has rows of the MTP layer";
  EXPECT_EQ(read(true), 40u);
  EXPECT_EQ(read(false), 40u) << "rows too many do no harm";
  EXPECT_EQ(cache.stats().images, 4u) << "those with the rows took the place of those without";
}

// From an image without drafts a conversation goes on without them; one with drafts joins it later.
TEST(PrefixCache, ChainsMayLackDraftsInBetween) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage, .spacing_tokens = 10});
  const Tokens prompt = Range(0, 61);
  const Cuts cuts = EveryCut(61, 10);
  const std::span<const TokenId> all = prompt;
  const std::span<const uint32_t> all_cuts = cuts;
  const auto read = [&](uint32_t until, bool drafts) {
    Cuts some(all_cuts.begin(), all_cuts.begin() + until / 10);
    some.push_back(until + 1);
    const PrefixQuery query{.tokens = all.first(until + 1), .cuts = some, .drafts = drafts};
    const Reading with = ReadPrompt(&cache, query);
    const Reading without = ReadPrompt(nullptr, query);
    EXPECT_EQ(with.sequence, without.sequence);
    if (drafts) {
      EXPECT_EQ(with.sequence.draft_values, without.sequence.draft_values);
    }
    return with.reused;
  };
  EXPECT_EQ(read(20, true), 0u);
  EXPECT_EQ(read(40, false), 20u);
  EXPECT_EQ(read(60, true), 20u) << "30 and 40 are without";
  EXPECT_EQ(read(60, true), 60u);
  EXPECT_EQ(read(60, false), 60u);
}

TEST(PrefixCache, LeastRecentlyUsedConversationGoesFirst) {
  FakeImager imager(3 * kPage);
  // Room for three conversations of one image: 4 pages each and their lists.
  PrefixCache cache(imager, {.ram_budget_bytes = 3 * (4 * kPage + 1000)});
  const auto read = [&](TokenId first) {
    const Tokens prompt = Range(first, 21);
    const Cuts cuts = EveryCut(21, 20);
    return ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts}).reused;
  };
  for (const TokenId first : {0, 1000, 2000}) EXPECT_EQ(read(first), 0u);
  EXPECT_EQ(cache.stats().images, 3u);
  EXPECT_EQ(read(0), 20u);
  EXPECT_EQ(read(3000), 0u);
  EXPECT_EQ(cache.stats().evictions, 1u);
  EXPECT_EQ(read(0), 20u);
  EXPECT_EQ(read(2000), 20u);
  EXPECT_EQ(read(1000), 0u) << "the one that nobody had asked for again";
  EXPECT_LE(cache.stats().bytes, cache.stats().budget_bytes);
}

TEST(PrefixCache, WhereConversationsPartLivesAsLongAsOneOfThem) {
  FakeImager imager(3 * kPage);
  PrefixCache cache(imager, {.ram_budget_bytes = 4 * (4 * kPage + 1000)});
  const Tokens system = Range(0, 20);
  const auto read = [&](TokenId first, uint32_t turns) {
    const Tokens prompt = Join(system, Range(first, 10 * turns + 1));
    Cuts cuts = {20};
    for (uint32_t t = 1; t <= turns; ++t) cuts.push_back(20 + 10 * t);
    cuts.push_back(static_cast<uint32_t>(prompt.size()));
    return ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts}).reused;
  };
  const Cuts system_cuts = {20, 21};
  const Tokens only_system = Join(system, {9});
  ReadPrompt(&cache, {.tokens = only_system, .cuts = system_cuts});
  EXPECT_EQ(read(1000, 1), 20u);
  EXPECT_EQ(read(2000, 1), 20u);
  for (uint32_t turn = 2; turn <= 6; ++turn) EXPECT_GT(read(1000, turn), 20u);
  EXPECT_GT(cache.stats().evictions, 0u);
  EXPECT_EQ(read(3000, 1), 20u) << "the system prompt, which was not found for long";
}

TEST(PrefixCache, LongPromptDoesNotPushConversationsOut) {
  FakeImager imager(3 * kPage);
  PrefixCache cache(imager, {.ram_budget_bytes = 260 * kPage, .spacing_tokens = 10});
  const auto read = [&](TokenId first, size_t count) {
    const Tokens prompt = Range(first, count);
    const Cuts cuts = EveryCut(count, 10);
    return ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts}).reused;
  };
  EXPECT_EQ(read(0, 11), 0u);
  EXPECT_EQ(read(1000, 11), 0u);
  EXPECT_EQ(read(5000, 2001), 0u) << "200 cuts";
  EXPECT_EQ(read(0, 11), 10u);
  EXPECT_EQ(read(1000, 11), 10u);
  EXPECT_EQ(read(5000, 2001), 2000u);
  EXPECT_GT(cache.stats().evictions, 150u) << "of the 200 images on the way";
  EXPECT_LE(cache.stats().bytes, cache.stats().budget_bytes);
}

TEST(PrefixCache, PromptBeyondTheBudgetKeepsItsBeginning) {
  FakeImager imager(3 * kPage);
  PrefixCache cache(imager, {.ram_budget_bytes = 30 * kPage, .spacing_tokens = 10});
  const Tokens prompt = Range(0, 1001);
  const Cuts cuts = EveryCut(1001, 10);
  ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts});
  EXPECT_LE(cache.stats().bytes, cache.stats().budget_bytes);
  EXPECT_GT(cache.stats().declined, 50u);
  const Reading again = ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts});
  EXPECT_GE(again.reused, 200u);
  EXPECT_EQ(again.sequence, ReadPrompt(nullptr, {.tokens = prompt, .cuts = cuts}).sequence);
}

TEST(PrefixCache, BudgetWithoutRoomForAnImageKeepsNothing) {
  FakeImager imager(3 * kPage);
  for (const uint64_t budget : {uint64_t{0}, 3 * kPage, 4 * kPage}) {
    PrefixCache cache(imager, {.ram_budget_bytes = budget});
    const Tokens prompt = Range(0, 21);
    const Cuts cuts = EveryCut(21, 10);
    ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts});
    EXPECT_EQ(ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts}).reused, 0u);
    EXPECT_EQ(cache.stats().bytes, 0u);
    EXPECT_EQ(cache.stats().declined, budget == 0 ? 0u : 2u);
  }
}

TEST(PrefixCache, FoundImageOutlivesItsEviction) {
  FakeImager imager(3 * kPage);
  PrefixCache cache(imager, {.ram_budget_bytes = 5 * kPage});
  const Tokens prompt = Range(0, 21), other = Range(500, 21);
  const Cuts cuts = EveryCut(21, 20);
  ReadPrompt(&cache, {.tokens = prompt, .cuts = cuts});
  const auto found = cache.Find({.tokens = prompt, .cuts = cuts});
  ASSERT_TRUE(found.has_value());
  ReadPrompt(&cache, {.tokens = other, .cuts = cuts});
  EXPECT_EQ(cache.stats().evictions, 1u);
  EXPECT_GT(cache.stats().bytes, 8 * kPage) << "both are held";
  FakeSequence sequence;
  ASSERT_TRUE(cache.Restore(*found, sequence).ok());
  EXPECT_EQ(sequence.tokens, Tokens(prompt.begin(), prompt.begin() + 20));
}

TEST(PrefixCache, ErrorsOfTheBackendAreToldAndLeaveNothing) {
  FakeImager imager;
  PrefixCache cache(imager, {.ram_budget_bytes = 100 * kPage});
  const Tokens prompt = Range(0, 21);
  const Cuts cuts = EveryCut(21, 10);
  const PrefixQuery query{.tokens = prompt, .cuts = cuts};
  FakeSequence sequence;
  sequence.Read(query.tokens.first(10));
  imager.save_status = absl::InternalError("the card is gone");
  EXPECT_EQ(cache.Keep(query, sequence).code(), absl::StatusCode::kOk) << "10 is not worth keeping";
  sequence.Read(query.tokens.subspan(10, 10));
  EXPECT_EQ(cache.Keep(query, sequence).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(cache.stats().bytes, 0u);
  EXPECT_FALSE(cache.Find(query).has_value());
  FakeSequence between;
  between.Read(query.tokens.first(7));
  EXPECT_EQ(cache.Keep(query, between).code(), absl::StatusCode::kInvalidArgument);
  const std::string salt(kPrefixSaltBytesMax + 1, 'x');
  EXPECT_EQ(cache.Keep({.tokens = prompt, .cuts = cuts, .salt = salt}, sequence).code(),
            absl::StatusCode::kInvalidArgument);
  FakeSequence used;
  imager.save_status = absl::OkStatus();
  ASSERT_TRUE(cache.Keep(query, sequence).ok());
  used.Read(query.tokens.first(3));
  EXPECT_EQ(cache.Restore(*cache.Find(query), used).code(), absl::StatusCode::kFailedPrecondition);
  FakeSequence small;
  small.context = 19;
  EXPECT_EQ(cache.Restore(*cache.Find(query), small).code(), absl::StatusCode::kResourceExhausted);
}

// Conversations over a small alphabet, cut where their tokens say, under every budget.
TEST(PrefixCache, WhatIsRestoredIsWhatReadingGives) {
  uint64_t hits = 0, evictions = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Prng prng(seed);
    FakeImager imager(prng.Below(3) * kPage + 8);
    PrefixCache cache(imager, {.ram_budget_bytes = (1 + prng.Below(150)) * kPage,
                               .spacing_tokens = 1 + static_cast<uint32_t>(prng.Below(20))});
    std::vector<Tokens> told(1);
    for (int step = 0; step < 60; ++step) {
      Tokens prompt = told[prng.Below(told.size())];
      prompt.resize(prng.Below(prompt.size() + 1));
      for (uint64_t n = 1 + prng.Below(30); n > 0; --n) {
        prompt.push_back(static_cast<TokenId>(prng.Below(3)));
      }
      Cuts cuts;  // after a 2 that is not too close, at 8 tokens at most
      for (uint32_t at = 0, last = 0; at < prompt.size();) {
        ++at;
        const bool cut = (prompt[at - 1] == 2 && at - last >= 3) || at - last == 8;
        if (cut || at == prompt.size()) cuts.push_back(last = at);
      }
      const std::string salt(prng.Below(4) == 0 ? "other" : "");
      const PrefixQuery query{
          .tokens = prompt, .cuts = cuts, .salt = salt, .drafts = prng.Below(2) == 0};
      const Reading with = ReadPrompt(&cache, query);
      const Reading without = ReadPrompt(nullptr, query);
      ASSERT_EQ(with.sequence, without.sequence) << "seed " << seed << " step " << step;
      if (query.drafts) {
        ASSERT_EQ(with.sequence.draft_values, without.sequence.draft_values);
      }
      ASSERT_LE(cache.stats().bytes, cache.stats().budget_bytes);
      told.push_back(std::move(prompt));
    }
    hits += cache.stats().hits;
    evictions += cache.stats().evictions;
    cache.Clear();
    ASSERT_EQ(cache.stats().bytes, 0u);
  }
  EXPECT_GT(hits, 500u);
  EXPECT_GT(evictions, 500u);
}

}  // namespace
}  // namespace hearth
