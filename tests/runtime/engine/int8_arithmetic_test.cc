// Fast arithmetic (int8 activations, Q8_0 dense weights, canonical experts) against reference
// arithmetic on the trained model, and its own promises: the same bits from every instruction set,
// however tokens are grouped into windows.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/prng.h"
#include "runtime/engine/scorer.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {
namespace {

constexpr const char* kDomains[] = {"python", "cpp", "chat", "en", "de",
                                    "fr",     "zh",  "ja",   "ru", "es"};

class Int8Arithmetic : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    golden_ =
        std::make_unique<GoldenFile>(HEARTH_SOURCE_DIR "/tests/golden/golden-nvfp4.safetensors");
    const std::string source = HEARTH_SOURCE_DIR "/profiles/flashlet";
    exact_pack_ = std::make_unique<TemporaryPack>(source, DenseChoice::kBf16);
    q8_pack_ = std::make_unique<TemporaryPack>(source, DenseChoice::kQ8);
  }
  static void TearDownTestSuite() {
    q8_pack_.reset();
    exact_pack_.reset();
    golden_.reset();
  }
  static std::vector<TokenId> Ids(const std::string& name) {
    const std::vector<int32_t> ids = golden_->Get<int32_t>(name + ".ids");
    return {ids.begin(), ids.end()};
  }
  static std::vector<std::vector<float>> Logits(ModelRunner& runner, std::span<const TokenId> ids,
                                                const std::vector<uint32_t>& splits) {
    std::vector<std::vector<float>> rows;
    const auto score = ScoreTokens(runner, ids,
                                   {.on_logits =
                                        [&](uint32_t, std::span<const float> row) {
                                          rows.emplace_back(row.begin(), row.end());
                                        },
                                    .splits = splits});
    EXPECT_TRUE(score.ok()) << score.status();
    return rows;
  }

  static std::unique_ptr<GoldenFile> golden_;
  static std::unique_ptr<TemporaryPack> exact_pack_;
  static std::unique_ptr<TemporaryPack> q8_pack_;
};
std::unique_ptr<GoldenFile> Int8Arithmetic::golden_;
std::unique_ptr<TemporaryPack> Int8Arithmetic::exact_pack_;
std::unique_ptr<TemporaryPack> Int8Arithmetic::q8_pack_;

TEST_F(Int8Arithmetic, LossAndTopTokenStayWithReference) {
  LoadedRunner reference(exact_pack_->dir(), {.options = {.arithmetic = Arithmetic::kReference}});
  LoadedRunner fast(q8_pack_->dir(), {.options = {.arithmetic = Arithmetic::kFast}});
  uint64_t positions = 0, agree = 0;
  for (const std::string domain : kDomains) {
    const std::vector<TokenId> ids = Ids("eval." + domain);
    const absl::StatusOr<Score> want = ScoreTokens(*reference, ids, {});
    const absl::StatusOr<Score> got = ScoreTokens(*fast, ids, {});
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    EXPECT_NEAR(got->mean_nll, want->mean_nll, 0.01) << domain;
    uint64_t same = 0;
    for (size_t i = 0; i < ids.size(); ++i) same += want->argmax[i] == got->argmax[i] ? 1 : 0;
    std::printf("%-7s mean loss %.4f, reference %.4f; top token agrees at %.2f%%\n", domain.c_str(),
                got->mean_nll, want->mean_nll,
                100.0 * static_cast<double>(same) / static_cast<double>(ids.size()));
    positions += ids.size();
    agree += same;
  }
  std::printf("top token agrees at %.2f%% of %zu positions\n",
              100.0 * static_cast<double>(agree) / static_cast<double>(positions),
              size_t{positions});
  EXPECT_GE(agree * 100, positions * 98);
}

TEST_F(Int8Arithmetic, EveryInstructionSetAndTeamGivesTheSameBits) {
  std::vector<TokenId> ids = Ids("code");
  ids.resize(170);  // beyond 132 tokens attention is sparse
  std::vector<std::vector<float>> first;
  for (const CpuKernels& kernels : AllCpuKernels()) {
    if (!Supports(DetectCpuFeatures(), kernels.isa)) continue;
    LoadedRunner runner(q8_pack_->dir(), {.options = {.arithmetic = Arithmetic::kFast},
                                          .worker_count = first.empty() ? 1u : 3u,
                                          .kernels = &kernels});
    const std::vector<std::vector<float>> rows = Logits(*runner, ids, {150, 1});
    if (first.empty()) first = rows;
    EXPECT_EQ(rows, first) << IsaName(kernels.isa);
  }
}

// Windows of any width, committed whole, give the bits of decoding one row at a time.
TEST_F(Int8Arithmetic, WindowWidthDoesNotChangeABit) {
  for (const Arithmetic arithmetic : {Arithmetic::kFast, Arithmetic::kReference}) {
    LoadedRunner runner(q8_pack_->dir(), {.options = {.arithmetic = arithmetic}});
    std::vector<TokenId> ids = Ids("code");
    ids.resize(200);
    const uint32_t vocab = runner->geometry().vocab_count;
    std::vector<std::vector<float>> one_by_one;
    for (const uint32_t width : {1u, 2u, 3u, 5u, 8u, 9u}) {
      const auto sequence = *runner->CreateSequence(256);
      std::vector<std::vector<float>> rows;
      const Segment prompt{.sequence = sequence.get(), .tokens = std::span(ids).first(120)};
      ASSERT_TRUE(runner->RunTrunk({&prompt, 1}, Phase::kPrompt).ok());
      ASSERT_TRUE(runner->Commit(*sequence, 120).ok());
      for (uint32_t begin = 120; begin < ids.size();) {
        const uint32_t count = std::min<uint32_t>(width, static_cast<uint32_t>(ids.size()) - begin);
        const Segment window{.sequence = sequence.get(),
                             .tokens = std::span(ids).subspan(begin, count)};
        ASSERT_TRUE(runner->RunTrunk({&window, 1}, Phase::kWindow).ok());
        std::vector<float> logits(size_t{count} * vocab);
        ASSERT_TRUE(runner->Head(0, count, logits).ok());
        for (uint32_t i = 0; i < count; ++i) {
          rows.emplace_back(logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab);
        }
        ASSERT_TRUE(runner->Commit(*sequence, count).ok());
        begin += count;
      }
      if (width == 1) one_by_one = rows;
      EXPECT_EQ(rows, one_by_one) << "windows of " << width;
    }
  }
}

// A window of which only the first rows are kept leaves exactly the state of those rows: KV,
// indexer keys and blocks that a dropped row completed, delta-rule states, convolution windows,
// n-gram history.
TEST_F(Int8Arithmetic, DroppedRowsLeaveNoTrace) {
  LoadedRunner runner(q8_pack_->dir(), {});
  std::vector<TokenId> ids = Ids("code");
  ids.resize(180);
  const uint32_t vocab = runner->geometry().vocab_count;
  const std::vector<std::vector<float>> want = Logits(*runner, ids, {100, 1});
  const auto sequence = *runner->CreateSequence(256);
  const Segment prompt{.sequence = sequence.get(), .tokens = std::span(ids).first(100)};
  ASSERT_TRUE(runner->RunTrunk({&prompt, 1}, Phase::kPrompt).ok());
  ASSERT_TRUE(runner->Commit(*sequence, 100).ok());
  Prng prng(7);
  for (uint32_t at = 100; at < ids.size();) {
    const auto kept = static_cast<uint32_t>(1 + prng.Below(std::min<uint64_t>(9, ids.size() - at)));
    const auto dropped = static_cast<uint32_t>(prng.Below(10 - kept));
    std::vector<TokenId> window(ids.begin() + at, ids.begin() + at + kept);
    for (uint32_t i = 0; i < dropped; ++i) {
      // An end-of-text token among them would reset the n-gram window if it left a trace.
      window.push_back(i == 1 ? 0 : static_cast<TokenId>(prng.Below(vocab)));
    }
    const Segment segment{.sequence = sequence.get(), .tokens = window};
    ASSERT_TRUE(runner->RunTrunk({&segment, 1}, Phase::kWindow).ok());
    std::vector<float> logits(window.size() * vocab);
    ASSERT_TRUE(runner->Head(0, static_cast<uint32_t>(window.size()), logits).ok());
    for (uint32_t i = 0; i < kept; ++i) {
      const std::vector<float> row(logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab);
      ASSERT_EQ(row, want[at + i]) << "position " << at + i;
    }
    ASSERT_TRUE(runner->Commit(*sequence, kept).ok());
    at += kept;
  }
}

// Rows of several sequences in one window are the rows of each alone.
TEST_F(Int8Arithmetic, SequencesShareAWindowWithoutMeeting) {
  LoadedRunner runner(q8_pack_->dir(), {});
  const std::vector<std::string> names = {"code", "prose", "zh"};
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::vector<std::vector<float>>> alone;
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const std::string& name : names) {
    ids.push_back(Ids(name));
    ids.back().resize(150);
    alone.push_back(Logits(*runner, ids.back(), {140, 1}));
    sequences.push_back(*runner->CreateSequence(160));
    const Segment prompt{.sequence = sequences.back().get(),
                         .tokens = std::span(ids.back()).first(140)};
    ASSERT_TRUE(runner->RunTrunk({&prompt, 1}, Phase::kPrompt).ok());
    ASSERT_TRUE(runner->Commit(*sequences.back(), 140).ok());
  }
  const uint32_t vocab = runner->geometry().vocab_count;
  std::vector<float> logits(size_t{6} * vocab);
  for (uint32_t at = 140; at + 3 <= 150; at += 3) {  // 1, 2 and 3 rows; each keeps and goes on by 3
    for (uint32_t step = 0; step < 3; step += 1) {
      std::vector<Segment> segments;
      for (size_t s = 0; s < names.size(); ++s) {
        segments.push_back({.sequence = sequences[s].get(),
                            .tokens = std::span(ids[s]).subspan(at + step, 1 + s % 2)});
      }
      ASSERT_TRUE(runner->RunTrunk(segments, Phase::kWindow).ok());
      ASSERT_TRUE(runner->Head(0, 4, logits).ok());
      size_t row = 0;
      for (size_t s = 0; s < names.size(); ++s) {
        const std::vector<float> got(logits.begin() + row * vocab,
                                     logits.begin() + (row + 1) * vocab);
        ASSERT_EQ(got, alone[s][at + step]) << names[s] << " position " << at + step;
        ASSERT_TRUE(runner->Commit(*sequences[s], 1).ok());
        row += segments[s].tokens.size();
      }
    }
  }
}

}  // namespace
}  // namespace hearth
