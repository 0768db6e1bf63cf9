// The choice of blocks: scores against double precision and the scalar twin, and the chosen blocks
// exactly, with real ties.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/attention/qsa_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

using QsaSelect = OnGpu;

// The best `count` of the scores, of equal ones the lower, ascending.
std::vector<uint32_t> BestBlocks(std::span<const float> scores, uint32_t count) {
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

double ScoreOf(const AttentionGeometry& a, const float* q, const float* key, double* magnitude) {
  double total = 0;
  *magnitude = 0;
  for (uint32_t h = 0; h < a.indexer_head_count; ++h) {
    double dot = 0;
    for (uint32_t d = 0; d < a.indexer_head_dim; ++d) {
      const double product = double{q[h * a.indexer_head_dim + d]} * key[d];
      dot += product;
      *magnitude += std::abs(product);
    }
    total += std::max(0.0, dot);
  }
  *magnitude /= std::sqrt(a.indexer_head_dim);
  return total / std::sqrt(a.indexer_head_dim);
}

struct Chosen {
  const QsaCase& c;
  const QsaPlan& plan;
  const QsaResult& result;
  const std::vector<float>& block_keys;  // of the row's sequence

  void CheckScores(uint32_t row, uint32_t blocks) const {
    const AttentionGeometry& a = c.desc.attention;
    const float* const q = &result.index[row * c.index_width()];
    const float* const scores = &result.scores[size_t{row} * plan.score_stride];
    std::vector<float> of_scalar(blocks);
    ScalarKernels().block_score.fn(
        {.q = q,
         .keys = block_keys.data(),
         .score = of_scalar.data(),
         .heads = a.indexer_head_count,
         .dim = a.indexer_head_dim,
         .block_count = blocks,
         .scale = 1.0f / std::sqrt(static_cast<float>(a.indexer_head_dim))});
    for (uint32_t b = 0; b < blocks; ++b) {
      double magnitude = 0;
      const double expected =
          ScoreOf(a, q, &block_keys[size_t{b} * a.indexer_head_dim], &magnitude);
      ASSERT_NEAR(scores[b], expected, 1e-6 * magnitude) << "row " << row << " block " << b;
      ASSERT_NEAR(scores[b], of_scalar[b], 1e-6 * magnitude) << "row " << row << " block " << b;
    }
  }
  void CheckChoice(uint32_t row, uint32_t blocks) const {
    const uint32_t count = c.desc.attention.block_count_max;
    const float* const scores = &result.scores[size_t{row} * plan.score_stride];
    const std::vector<uint32_t> expected = BestBlocks({scores, blocks}, count);
    const auto begin = result.chosen.begin() + static_cast<ptrdiff_t>(size_t{row} * count);
    EXPECT_EQ(std::vector<uint32_t>(begin, begin + count), expected) << "row " << row;
  }
};

// Runs append and select over the pieces and checks every row that must choose.
void CheckSelect(const QsaCase& c, const std::vector<QsaPiece>& pieces, const GpuInfo& gpu,
                 const UniqueStream& stream) {
  const QsaOnGpu on_gpu(c, gpu, stream);
  const QsaPass pass = on_gpu.Pass(pieces);
  ASSERT_TRUE(pass.Append(stream.view()).ok());
  ASSERT_TRUE(pass.Select(stream.view()).ok());
  const absl::Status status = stream.Synchronize();
  ASSERT_TRUE(status.ok()) << status;
  const QsaResult result = pass.Read();
  const AttentionGeometry& a = c.desc.attention;
  uint32_t row = 0;
  for (const QsaPiece& piece : pieces) {
    const std::vector<float> block_keys = on_gpu.state(piece.sequence).block_keys.Read();
    const Chosen chosen = {c, on_gpu.plan(), result, block_keys};
    for (uint32_t i = 0; i < piece.rows; ++i, ++row) {
      SCOPED_TRACE(absl::StrCat("sequence ", piece.sequence, " of head_dim ", a.head_dim));
      const uint32_t position = c.sequences[piece.sequence].base + piece.first + i;
      const uint32_t blocks = (position + 1) / a.block_tokens;
      if (blocks <= a.block_count_max) {
        for (uint32_t r = 0; r < a.block_count_max && !result.chosen.empty(); ++r) {
          ASSERT_EQ(result.chosen[size_t{row} * a.block_count_max + r], UINT32_MAX);
        }
        continue;
      }
      chosen.CheckScores(row, blocks);
      chosen.CheckChoice(row, blocks);
    }
  }
}

QsaDesc DescOf(const AttentionGeometry& a, uint32_t rows, uint32_t context) {
  return {.attention = a, .norm_epsilon = 1e-6f, .rows_max = rows, .context_max = context};
}

// What the indexer needs of a long context costs little when the K/V heads are narrow.
AttentionGeometry LongContext() {
  AttentionGeometry a = FlashNextAttention();
  a.head_count = 1;
  a.kv_head_count = 1;
  a.head_dim = 64;
  return a;
}

TEST_F(QsaSelect, WindowsOfSeveralSequences) {
  for (const AttentionGeometry& a :
       {FlashletAttention(), TinyAttention(), OddAttention(), NarrowAttention()}) {
    Prng prng(a.head_dim);
    QsaCase c(&prng, DescOf(a, 16, 960));
    c.AddSequence(&prng, 800, 9);
    c.AddSequence(&prng, 3, 2);
    c.AddSequence(&prng, a.block_tokens * (a.block_count_max + 1) - 3, 5);  // where choice begins
    CheckSelect(c, {{0, 0, 9}, {1, 0, 2}, {2, 0, 5}}, gpu(), stream());
  }
}

TEST_F(QsaSelect, FullGeometry) {
  Prng prng(3);
  QsaCase c(&prng, DescOf(FlashNextAttention(), 16, 8192));
  c.AddSequence(&prng, 2045, 9);
  c.AddSequence(&prng, 8183, 4);
  CheckSelect(c, {{0, 0, 9}, {1, 0, 4}}, gpu(), stream());
}

TEST_F(QsaSelect, PromptsInTurns) {
  Prng prng(4);
  QsaCase c(&prng, DescOf(FlashletAttention(), 300, 2000));
  c.AddSequence(&prng, 50, 130);
  c.AddSequence(&prng, 1700, 170);
  CheckSelect(c, {{0, 0, 130}, {1, 0, 170}}, gpu(), stream());
}

TEST_F(QsaSelect, LongestContexts) {
  Prng prng(5);
  QsaCase c(&prng, DescOf(LongContext(), 4, 262144));
  c.AddSequence(&prng, 262140, 4);
  c.AddSequence(&prng, 65536, 2);  // just more blocks than registers hold
  CheckSelect(c, {{0, 0, 2}, {1, 0, 2}}, gpu(), stream());
}

// Almost all scores are exactly zero: the choice is then of the lowest blocks.
TEST_F(QsaSelect, ZeroScoresTie) {
  for (uint32_t base : {40000u, 200000u}) {
    Prng prng(6);
    QsaCase c(&prng, DescOf(LongContext(), 4, 262144));
    c.AddSequence(&prng, base, 2);
    std::vector<float>& keys = c.sequences[0].past.block_keys;
    for (size_t b = 0; b < keys.size() / 128; ++b) {
      if (b % 97 != 0) std::fill_n(&keys[b * 128], 128, 0.0f);
    }
    CheckSelect(c, {{0, 0, 2}}, gpu(), stream());
  }
}

// A score that is not a number: any choice, in range and without a fault.
TEST_F(QsaSelect, NotANumber) {
  Prng prng(7);
  QsaCase c(&prng, DescOf(FlashletAttention(), 4, 960));
  c.AddSequence(&prng, 900, 3);
  std::fill_n(c.sequences[0].past.block_keys.begin(), 150 * 32,
              std::numeric_limits<float>::quiet_NaN());
  const QsaOnGpu on_gpu(c, gpu(), stream());
  const absl::StatusOr<QsaResult> result = on_gpu.Run(std::vector<QsaPiece>{{0, 0, 3}});
  ASSERT_TRUE(result.ok()) << result.status();
  for (uint32_t block : result->chosen) EXPECT_LT(block, 226u);
}

}  // namespace
}  // namespace hearth
