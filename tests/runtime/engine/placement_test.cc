// Wherever the experts are, the logits are the same bits: whole arena, slots from one to all, every
// share of uploads, RAM budgets down to the least, and both together; over prompts, windows of one
// to four rows of which some are taken back, and drafts. And what a runner takes is what its plan
// says.
#include "runtime/engine/expert_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cache/store/block_layout.h"
#include "pack/synth/build_synthetic.h"
#include "runtime/base/check.h"
#include "runtime/base/prng.h"
#include "runtime/engine/memory_plan.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEARTH_SANITIZED 1
#else
#define HEARTH_SANITIZED 0
#endif

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kVocab = 512;
constexpr uint32_t kWindowCount = 8;

// Logits of everything that is computed: two prompt passes, then windows with drafts between them.
std::vector<float> LogitsOf(ModelRunner& runner, uint64_t seed) {
  std::vector<float> all;
  const uint32_t vocab = runner.geometry().vocab_count;
  const auto head = [&](uint32_t row_begin, uint32_t row_count) {
    const size_t begin = all.size();
    all.resize(begin + size_t{row_count} * vocab);
    ASSERT_TRUE(runner.Head(row_begin, row_count, std::span(all).subspan(begin)).ok());
  };
  const auto run = [&]() -> absl::Status {
    Prng prng(seed);
    std::vector<TokenId> tokens;
    const auto sequence = *runner.CreateSequence(256);
    const auto pass = [&](uint32_t rows, uint32_t kept, Phase phase) -> absl::Status {
      std::vector<TokenId> window;
      for (uint32_t r = 0; r < rows; ++r) {
        window.push_back(static_cast<TokenId>(3 + prng.Below(kVocab - 3)));
      }
      const Segment segment{.sequence = sequence.get(), .tokens = window};
      absl::Status status = runner.RunTrunk({&segment, 1}, phase, {});
      if (!status.ok()) return status;
      phase == Phase::kPrompt ? head(rows - 1, 1) : head(0, rows);
      tokens.insert(tokens.end(), window.begin(), window.begin() + kept);
      status = runner.Commit(*sequence, kept);
      if (!status.ok()) return status;
      // The MTP layer reads what was kept; what comes next is not known yet: any token does.
      std::vector<TokenId> pairs(tokens.begin() + sequence->draft_count() + 1, tokens.end());
      pairs.push_back(7);
      status = runner.RunDraft(*sequence, pairs, Backend::DraftSource::kTrunk);
      if (!status.ok()) return status;
      head(static_cast<uint32_t>(pairs.size()) - 1, 1);
      return runner.CommitDraft(*sequence);
    };
    absl::Status status = pass(26, 26, Phase::kPrompt);
    if (status.ok()) status = pass(7, 7, Phase::kPrompt);
    for (uint32_t w = 0; w < kWindowCount && status.ok(); ++w) {
      const uint32_t rows = w % 4 + 1;
      status = pass(rows, 1 + static_cast<uint32_t>(prng.Below(rows)), Phase::kWindow);
    }
    return status;
  };
  const absl::Status status = run();
  EXPECT_TRUE(status.ok()) << status;
  return all;
}

uint64_t ExpertBytes(const std::string& pack_dir) {
  const absl::StatusOr<Pack> pack = Pack::Open(pack_dir);
  HEARTH_CHECK(pack.ok());
  return AllBlockBytes(pack->experts);
}

// A share of all experts, or the least that works.
ExpertOptions Budget(const std::string& pack_dir, double share) {
  const absl::StatusOr<Pack> pack = Pack::Open(pack_dir);
  HEARTH_CHECK(pack.ok());
  const auto bytes = static_cast<uint64_t>(share * AllBlockBytes(pack->experts));
  ExpertOptions options;
  options.ram = RamTier::kBudget;
  options.ram_budget_bytes = std::max(bytes, LeastBlockBytes(pack->experts));
  return options;
}

ExpertOptions Slots(const SlotBudget& budget, double pcie_share, ExpertOptions options = {}) {
  options.slots = budget;
  options.pcie_share = pcie_share;
  return options;
}

struct Placement {
  std::string name;
  ExpertOptions options;
};

std::vector<Placement> Placements(const std::string& dir) {
  std::vector<Placement> all;
  for (const double share : {0.0, 0.3, 1.0}) {
    const std::string at = " pcie share " + std::to_string(share);
    all.push_back({"1 slot" + at, Slots({.slot_count = 1}, share)});
    all.push_back({"40%" + at, Slots({.share = 0.4}, share)});
    all.push_back({"all slots" + at, Slots({.share = 1}, share)});
  }
  for (const double budget : {0.05, 0.25, 0.6, 1.5}) {
    const std::string at = "RAM budget " + std::to_string(budget);
    all.push_back({at, Budget(dir, budget)});
    all.push_back({at + " 1 slot", Slots({.slot_count = 1}, 1, Budget(dir, budget))});
    all.push_back({at + " 40%", Slots({.share = 0.4}, 0.5, Budget(dir, budget))});
  }
  all.push_back({"automatic share", Slots({.share = 0.4}, -1)});
  ExpertOptions few_bytes = Slots({.share = 0.4}, 1);
  few_bytes.pcie_window_bytes_max = 60'000;
  all.push_back({"60 kB a window", few_bytes});
  for (const char* policy : {"lru", "lfu", "decay", "static"}) {
    all.push_back({policy, Slots({.share = 0.4}, 0.3, Budget(dir, 0.25))});
    all.back().options.policy = policy;
  }
  return all;
}

RunnerSetup SetupOf(const ExpertOptions& experts, Arithmetic arithmetic) {
  return {.options = {.arithmetic = arithmetic,
                      .limits = {.prompt_rows_max = 32, .window_rows_max = 4},
                      .experts = experts}};
}

void ExpectLedgerAddsUp(const ModelRunner& runner) {
  const Ledger& ledger = runner.experts().tiers().ledger();
  LedgerCounts sum;
  for (const LedgerCounts& layer : ledger.layers()) sum += layer;
  const LedgerCounts total = ledger.total();
  EXPECT_EQ(total.services, sum.services);
  EXPECT_GT(total.total().entries, 0u);
}

// At every `step`-th placement.
void ExpectSameLogits(const std::string& dir, Arithmetic arithmetic, size_t step) {
  LoadedRunner whole(dir, SetupOf({}, arithmetic));
  const std::vector<float> expected = LogitsOf(*whole, 1);
  const std::vector<float> expected_next = LogitsOf(*whole, 2);
  ASSERT_FALSE(expected.empty());
  ASSERT_TRUE(std::ranges::all_of(expected, [](float v) { return std::isfinite(v); }));
  const LedgerCounts all = whole->experts().tiers().ledger().total();
  const std::vector<Placement> placements = Placements(dir);
  for (size_t i = 0; i < placements.size(); i += step) {
    const Placement& placement = placements[i];
    SCOPED_TRACE(placement.name);
    LoadedRunner runner(dir, SetupOf(placement.options, arithmetic));
    ASSERT_EQ(LogitsOf(*runner, 1), expected);
    ASSERT_EQ(LogitsOf(*runner, 2), expected_next) << "warm";
    ExpectLedgerAddsUp(*runner);
    const LedgerCounts total = runner->experts().tiers().ledger().total();
    EXPECT_EQ(total.total().distinct, all.total().distinct);
    EXPECT_EQ(total.total().entries, all.total().entries);
    EXPECT_EQ(total.passes, all.passes);
    const bool budget = placement.options.ram == RamTier::kBudget;
    const bool reads = budget && placement.options.ram_budget_bytes < ExpertBytes(dir);
    EXPECT_EQ(total.of(Service::kSsd).distinct > 0, reads);
    const double share = placement.options.pcie_share;
    if (share == 0 || runner->experts().slots() == nullptr) {
      EXPECT_EQ(total.of(Service::kPcie).distinct, 0u);
    }
    if (placement.options.slots && placement.options.slots->share > 0) {
      EXPECT_GT(total.of(Service::kVram).distinct, 0u);
    }
  }
}

TEST(Placement, ChangesNoLogitOfTheHashModel) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  ExpectSameLogits(pack.dir(), Arithmetic::kFast, 1);
}

std::string SyntheticPack(const FixtureDir& dir, ExpertFormat format, const XtBits& bits) {
  SyntheticPackOptions options{.out = dir.File("pack"), .worker_count = 1};
  options.shape = {.model = SyntheticModel::kFlashlet,
                   .layer_count = 4,
                   .expert_count = 24,
                   .experts_per_token = 3,
                   .hidden = 64,
                   .expert_width = 32,
                   .ngram_head_rows = 1009,
                   .has_mtp = true};
  options.shape.format = format;
  options.shape.xt_bits = bits;
  const auto report = BuildSyntheticPack(options, nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
  return options.out;
}

TEST(Placement, ChangesNoLogitOfNvfp4Experts) {
  const FixtureDir dir;
  const std::string pack = SyntheticPack(dir, ExpertFormat::kNvfp4, {});
  ExpectSameLogits(pack, Arithmetic::kFast, 2);
}

TEST(Placement, ChangesNoLogitOfReferenceArithmetic) {
  const FixtureDir dir;
  const std::string pack = SyntheticPack(dir, ExpertFormat::kNvfp4, {});
  ExpectSameLogits(pack, Arithmetic::kReference, 2);
}

TEST(Placement, ChangesNoLogitOfXtExperts) {
  const FixtureDir dir;
  const std::string pack = SyntheticPack(dir, ExpertFormat::kXt, XtBits::All(3));
  ExpectSameLogits(pack, Arithmetic::kFast, 3);
}

// What a profile says is in the slots before the first pass.
TEST(Placement, SeedsFillTheSlots) {
  const TemporaryPack pack(HashModel(), DenseChoice::kBf16);
  ExpertOptions options = Slots({.share = 0.5}, -1);
  for (uint32_t l = 0; l < 5; ++l) {
    options.seeds.emplace_back(32);
    for (uint32_t e = 0; e < 16; ++e) options.seeds.back()[e * 2] = 4;
  }
  LoadedRunner runner(pack.dir(), SetupOf(options, Arithmetic::kFast));
  for (uint32_t l = 0; l < 5; ++l) {
    for (uint32_t e = 0; e < 32; ++e) {
      EXPECT_EQ(runner->experts().slots()->resident({LayerId(l), ExpertId(e)}), e % 2 == 0);
    }
  }
  LoadedRunner whole(pack.dir(), SetupOf({}, Arithmetic::kFast));
  EXPECT_EQ(LogitsOf(*runner, 3), LogitsOf(*whole, 3));
}

class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlanTest() : pack_(HashModel(), DenseChoice::kBf16) {}
  MemoryPlan PlanOf(const ExpertOptions& experts) {
    const absl::StatusOr<Pack> pack = Pack::Open(pack_.dir());
    HEARTH_CHECK(pack.ok());
    const auto plan = ModelRunner::Plan(*pack, SetupOf(experts, Arithmetic::kFast).options, 2);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  }
  static uint64_t BytesOf(const MemoryPlan& plan, const std::string& what) {
    uint64_t sum = 0;
    for (const MemoryItem& item : plan.items) sum += item.what == what ? item.bytes : 0;
    return sum;
  }
  TemporaryPack pack_;
};

TEST_F(MemoryPlanTest, PartsAddUpAndComeLargestFirst) {
  const MemoryPlan plan = PlanOf(Slots({.share = 0.4}, -1));
  uint64_t sum = 0;
  for (const MemoryItem& item : plan.items) sum += item.bytes;
  EXPECT_EQ(plan.ram_bytes() + plan.card_bytes(), sum);
  EXPECT_TRUE(std::ranges::is_sorted(plan.items, std::ranges::greater(), &MemoryItem::bytes));
  EXPECT_EQ(BytesOf(plan, "experts"), ExpertBytes(pack_.dir()));
  EXPECT_EQ(plan.card_bytes(), 0u);  // the host plays the card
  LoadedRunner runner(pack_.dir(), SetupOf(Slots({.share = 0.4}, -1), Arithmetic::kFast));
  EXPECT_EQ(BytesOf(plan, "slots in place of a card"), runner->experts().slots()->bytes());
}

TEST_F(MemoryPlanTest, BudgetIsPlannedButNeverMoreThanAllExperts) {
  const ExpertOptions quarter = Budget(pack_.dir(), 0.25);
  EXPECT_EQ(BytesOf(PlanOf(quarter), "expert budget"), quarter.ram_budget_bytes);
  ExpertOptions plenty = quarter;
  plenty.ram_budget_bytes = uint64_t{1} << 50;
  EXPECT_EQ(BytesOf(PlanOf(plenty), "expert budget"), ExpertBytes(pack_.dir()));
}

TEST_F(MemoryPlanTest, SlotsOfACardAreNotRam) {
  const absl::StatusOr<Pack> pack = Pack::Open(pack_.dir());
  ASSERT_TRUE(pack.ok());
  const ExpertOptions experts = Slots({.share = 0.4}, -1);
  const PassLimits limits;
  GpuInfo gpu;
  gpu.id = GpuId(0);
  const auto on_host =
      PlanMemory({.pack = *pack, .experts = experts, .limits = limits, .context_tokens = 1024});
  const auto on_card = PlanMemory(
      {.pack = *pack, .experts = experts, .limits = limits, .context_tokens = 1024, .gpu = &gpu});
  if (absl::IsUnimplemented(on_card.status())) GTEST_SKIP() << on_card.status();
  ASSERT_TRUE(on_card.ok() && on_host.ok()) << on_card.status();
  EXPECT_EQ(BytesOf(*on_card, "slots"), BytesOf(*on_host, "slots in place of a card"));
  EXPECT_GT(BytesOf(*on_card, "dense weights on the card"), 0u);
  uint64_t card_bytes = 0;
  for (const MemoryItem& item : on_card->items) card_bytes += item.on_card ? item.bytes : 0;
  EXPECT_EQ(on_card->card_bytes(), card_bytes);
  EXPECT_GT(card_bytes, BytesOf(*on_card, "slots"));
  EXPECT_THAT(DescribeMemoryPlan(*on_card, {.available_bytes = 1, .source = "x"}),
              HasSubstr("VRAM"));
}

TEST_F(MemoryPlanTest, TooLittleMemoryIsRefusedBeforeAnythingIsReadWithPlanLimitAndRemedy) {
  const MemoryPlan plan = PlanOf({});
  const MemoryLimit enough{.available_bytes = plan.ram_bytes(), .source = "memory.max"};
  EXPECT_TRUE(CheckMemoryPlan(plan, enough).ok());
  const MemoryLimit short_by_one{.available_bytes = plan.ram_bytes() - 1, .source = "memory.max"};
  const absl::Status status = CheckMemoryPlan(plan, short_by_one);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"experts", "dense weights", "buffers", "program", "memory.max",
                           "--ram-budget", "--slots"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  RunnerSetup setup = SetupOf({}, Arithmetic::kFast);
  setup.options.memory = short_by_one;
  absl::StatusOr<Pack> pack = Pack::Open(pack_.dir());
  ASSERT_TRUE(pack.ok());
  WorkerTeam team(2);
  SteadyClock clock;
  bool read = false;
  const auto runner =
      ModelRunner::Load(*std::move(pack), setup.options, SelectCpuKernels(DetectCpuFeatures()),
                        team, clock, [&](std::string_view, uint64_t, uint64_t) { read = true; });
  EXPECT_EQ(runner.status().code(), absl::StatusCode::kResourceExhausted) << runner.status();
  EXPECT_THAT(std::string(runner.status().message()), HasSubstr(pack_.dir()));
  EXPECT_FALSE(read);
}

uint64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
  }
  return 0;
}

// A pack of 120 MB: the peak stays within the plan, and the plan is not far above the peak.
TEST(MemoryPlanOfARun, IsWhatTheProcessTakes) {
  if (HEARTH_SANITIZED != 0) GTEST_SKIP() << "sanitizers take memory of their own";
  const FixtureDir dir;
  SyntheticPackOptions options{.out = dir.File("pack"), .worker_count = 2};
  options.shape = {.model = SyntheticModel::kFlashlet,
                   .layer_count = 4,
                   .expert_count = 96,
                   .experts_per_token = 4,
                   .hidden = 512,
                   .expert_width = 256,
                   .ngram_head_rows = 1009,
                   .has_mtp = true};
  ASSERT_TRUE(BuildSyntheticPack(options, nullptr).ok());
  const uint64_t all = ExpertBytes(options.out);
  ASSERT_GT(all, 100'000'000u);
  constexpr uint64_t kProgramBytes = uint64_t{48} << 20;
  for (const double budget : {0.0, 0.3}) {
    for (const double slots : {0.0, 0.25}) {
      SCOPED_TRACE(testing::Message() << "budget " << budget << " slots " << slots);
      ExpertOptions experts = budget == 0 ? ExpertOptions{} : Budget(options.out, budget);
      experts.slots = SlotBudget{.share = slots};
      experts.seeds.assign(5, std::vector<float>(96, 1.0f));  // fills the slots
      RunnerSetup setup = SetupOf(experts, Arithmetic::kFast);
      setup.options.planned_context_tokens = 256;
      const absl::StatusOr<Pack> pack = Pack::Open(options.out);
      ASSERT_TRUE(pack.ok());
      const auto plan = ModelRunner::Plan(*pack, setup.options, setup.worker_count);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const uint64_t before = StatusBytes("VmRSS:");
      std::ofstream("/proc/self/clear_refs") << "5";  // the peak from now on
      if (StatusBytes("VmHWM:") > before + (8 << 20)) GTEST_SKIP() << "the peak cannot be reset";
      LoadedRunner runner(options.out, setup);
      LogitsOf(*runner, 1);
      const uint64_t peak = StatusBytes("VmHWM:") - before;
      const uint64_t planned = plan->ram_bytes() - kProgramBytes;
      EXPECT_LE(peak, plan->ram_bytes());
      EXPECT_LE(peak, planned + planned / 10 + (8 << 20));
      EXPECT_GE(peak, planned - planned / 10);
    }
  }
}

}  // namespace
}  // namespace hearth
