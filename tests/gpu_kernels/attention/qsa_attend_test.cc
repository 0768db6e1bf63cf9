// Attention over the chosen positions against double precision on the same caches, its
// quantisation, and that the bits of a row depend on nothing but the row.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/graph.h"
#include "tests/gpu_kernels/attention/qsa_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

using QsaAttend = OnGpu;

QsaDesc DescOf(const AttentionGeometry& a, KvFormat format, uint32_t rows, uint32_t context) {
  return {.attention = a,
          .norm_epsilon = 1e-6f,
          .kv_format = format,
          .rows_max = rows,
          .context_max = context};
}

std::vector<uint32_t> PositionsOf(const AttentionGeometry& a, uint32_t position,
                                  const uint32_t* chosen) {
  std::vector<uint32_t> positions;
  const uint32_t blocks = (position + 1) / a.block_tokens;
  uint32_t tail = 0;
  if (blocks > a.block_count_max) {
    for (uint32_t i = 0; i < a.block_count_max; ++i) {
      for (uint32_t t = 0; t < a.block_tokens; ++t) {
        positions.push_back(chosen[i] * a.block_tokens + t);
      }
    }
    tail = blocks * a.block_tokens;
  }
  for (uint32_t p = tail; p <= position; ++p) positions.push_back(p);
  return positions;
}

struct Attended {
  const QsaCase& c;
  const QsaHistory& caches;  // after the append
  const QsaResult& result;

  std::vector<double> Head(uint32_t row, uint32_t head,
                           const std::vector<uint32_t>& positions) const {
    const AttentionGeometry& a = c.desc.attention;
    const size_t kv_head = head / (a.head_count / a.kv_head_count);
    const float* const q = &result.qg[row * c.qg_width() + size_t{head} * 2 * a.head_dim];
    std::vector<double> s(positions.size());
    double max = -INFINITY;
    for (size_t i = 0; i < positions.size(); ++i) {
      const size_t at = size_t{positions[i]} * a.kv_head_count + kv_head;
      for (uint32_t d = 0; d < a.head_dim; ++d) {
        s[i] += q[d] * CacheValue(c.desc, caches.k, caches.k_scale, at, d);
      }
      s[i] /= std::sqrt(a.head_dim);
      max = std::max(max, s[i]);
    }
    double sum = 0;
    for (double& x : s) {
      x = std::exp(x - max);
      sum += x;
    }
    std::vector<double> out(a.head_dim);
    for (size_t i = 0; i < positions.size(); ++i) {
      const size_t at = size_t{positions[i]} * a.kv_head_count + kv_head;
      for (uint32_t d = 0; d < a.head_dim; ++d) {
        out[d] += s[i] / sum * CacheValue(c.desc, caches.v, caches.v_scale, at, d);
      }
    }
    for (uint32_t d = 0; d < a.head_dim; ++d) {
      out[d] /= 1 + std::exp(-static_cast<double>(q[a.head_dim + d]));
    }
    return out;
  }

  // Error of the row by norm; the largest over all heads would be of a head's own size.
  double Error(uint32_t row, const std::vector<uint32_t>& positions) const {
    const AttentionGeometry& a = c.desc.attention;
    double worst = 0;
    for (uint32_t head = 0; head < a.head_count; ++head) {
      const std::vector<double> expected = Head(row, head, positions);
      double error = 0;
      double size = 0;
      for (uint32_t d = 0; d < a.head_dim; ++d) {
        const double actual = result.out[row * c.out_width() + size_t{head} * a.head_dim + d];
        error += (actual - expected[d]) * (actual - expected[d]);
        size += expected[d] * expected[d];
      }
      const double relative = std::sqrt(error / size);
      worst = relative == relative ? std::max(worst, relative) : INFINITY;
    }
    return worst;
  }

  void Quantisation(uint32_t rows) const {
    const QuantizedBuffer expected = Quantized(result.out, rows, c.out_width());
    EXPECT_EQ(result.q, expected.q);
    EXPECT_EQ(std::memcmp(result.scale.data(), expected.scale.data(),
                          expected.scale.size() * sizeof(float)),
              0);
    EXPECT_EQ(result.sum16, expected.sum16);
  }
};

// Sixteen bits of queries and probabilities; the errors of few dimensions do not average out.
double Tolerance(const AttentionGeometry& a) { return a.head_dim >= 64 ? 1e-5 : 3e-5; }

// Rows of a pass to check: every `step`-th, and the last.
void CheckAttend(const QsaCase& c, const std::vector<QsaPiece>& pieces, uint32_t step,
                 const GpuInfo& gpu, const UniqueStream& stream) {
  const QsaOnGpu on_gpu(c, gpu, stream);
  const absl::StatusOr<QsaResult> result = on_gpu.Run(pieces);
  ASSERT_TRUE(result.ok()) << result.status();
  const AttentionGeometry& a = c.desc.attention;
  uint32_t row = 0;
  double worst = 0;
  for (const QsaPiece& piece : pieces) {
    const QsaHistory caches = on_gpu.state(piece.sequence).Read();
    const Attended attended = {c, caches, *result};
    for (uint32_t i = 0; i < piece.rows; ++i, ++row) {
      if (i % step != 0 && i + 1 != piece.rows) continue;
      const uint32_t position = c.sequences[piece.sequence].base + piece.first + i;
      const std::vector<uint32_t> positions =
          PositionsOf(a, position, result->chosen.data() + size_t{row} * a.block_count_max);
      const double error = attended.Error(row, positions);
      EXPECT_LT(error, Tolerance(a)) << "sequence " << piece.sequence << " row " << i;
      worst = std::max(worst, error);
    }
    if (row == result->out.size() / c.out_width()) attended.Quantisation(row);
  }
  std::printf("head_dim %u, format %d: largest relative error %.2e\n", a.head_dim,
              static_cast<int>(c.desc.kv_format), worst);
}

constexpr KvFormat kFormats[] = {KvFormat::kBf16, KvFormat::kInt8};

TEST_F(QsaAttend, WindowsOfSeveralSequences) {
  for (const AttentionGeometry& a :
       {FlashletAttention(), TinyAttention(), OddAttention(), NarrowAttention()}) {
    for (KvFormat format : kFormats) {
      SCOPED_TRACE(absl::StrCat("head_dim ", a.head_dim, " format ", static_cast<int>(format)));
      Prng prng(a.head_dim);
      QsaCase c(&prng, DescOf(a, format, 16, 960));
      c.AddSequence(&prng, 800, 8);
      c.AddSequence(&prng, 0, 1);
      c.AddSequence(&prng, 62, 4);
      c.AddSequence(&prng, a.block_tokens * (a.block_count_max + 1) - 3, 3);
      CheckAttend(c, {{0, 0, 8}, {1, 0, 1}, {2, 0, 4}, {3, 0, 3}}, 1, gpu(), stream());
    }
  }
}

TEST_F(QsaAttend, FullGeometry) {
  for (KvFormat format : kFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    Prng prng(11);
    QsaCase c(&prng, DescOf(FlashNextAttention(), format, 16, 4096));
    c.AddSequence(&prng, 2047, 9);  // over the place where the choice begins
    c.AddSequence(&prng, 4000, 3);
    CheckAttend(c, {{0, 0, 9}, {1, 0, 3}}, 2, gpu(), stream());
  }
}

TEST_F(QsaAttend, Prompts) {
  for (const AttentionGeometry& a :
       {FlashletAttention(), TinyAttention(), OddAttention(), NarrowAttention()}) {
    for (KvFormat format : kFormats) {
      SCOPED_TRACE(absl::StrCat("head_dim ", a.head_dim, " format ", static_cast<int>(format)));
      Prng prng(a.head_dim + 1);
      QsaCase c(&prng, DescOf(a, format, 400, 960));
      c.AddSequence(&prng, 0, 190);  // dense first, then sparse
      c.AddSequence(&prng, 500, 97);
      c.AddSequence(&prng, 7, 3);
      CheckAttend(c, {{0, 0, 190}, {1, 0, 97}, {2, 0, 3}}, 13, gpu(), stream());
    }
  }
}

TEST_F(QsaAttend, PromptOfTheFullGeometry) {
  for (KvFormat format : kFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    Prng prng(12);
    QsaCase c(&prng, DescOf(FlashNextAttention(), format, 256, 4096));
    c.AddSequence(&prng, 1990, 130);
    c.AddSequence(&prng, 0, 77);
    CheckAttend(c, {{0, 0, 130}, {1, 0, 77}}, 31, gpu(), stream());
  }
}

// One recording serves other positions, other segments and other sequences.
TEST_F(QsaAttend, AGraphReadsThePassFromMemory) {
  Prng prng(14);
  QsaCase c(&prng, DescOf(FlashletAttention(), KvFormat::kBf16, 16, 4096));
  c.AddSequence(&prng, 40, 3);
  c.AddSequence(&prng, 3001, 4);
  const std::vector<QsaPiece> first = {{0, 0, 3}, {1, 0, 1}};
  const std::vector<QsaPiece> then = {{1, 1, 2}, {1, 3, 1}, {0, 0, 1}};
  const QsaOnGpu direct(c, gpu(), stream());
  ASSERT_TRUE(direct.Run(first).ok());
  const absl::StatusOr<QsaResult> expected = direct.Run(then);
  ASSERT_TRUE(expected.ok()) << expected.status();

  const QsaOnGpu recorded(c, gpu(), stream());
  const QsaPass pass = recorded.Pass(first);
  const absl::StatusOr<UniqueGraph> graph =
      UniqueGraph::Capture(stream().view(), [&](CudaStreamView view) -> absl::Status {
        HEARTH_RETURN_IF_ERROR(pass.Append(view));
        HEARTH_RETURN_IF_ERROR(pass.Select(view));
        return pass.Attend(view);
      });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->node_count(), 5u);
  ASSERT_TRUE(graph->Launch(stream().view()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  const QsaPass other = recorded.Pass(then);
  pass.Become(other);
  ASSERT_TRUE(graph->Launch(stream().view()).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  const QsaResult result = pass.Read();
  EXPECT_EQ(std::memcmp(result.out.data(), expected->out.data(), result.out.size() * 4), 0);
  EXPECT_EQ(result.q, expected->q);
}

// The rows of each sequence, one after the other in whatever passes they ran.
struct RowBits {
  std::vector<float> out;
  std::vector<uint32_t> chosen;
  std::vector<int8_t> q;
};

absl::StatusOr<RowBits> RunInPieces(const QsaCase& c, const std::vector<std::vector<QsaPiece>>& cut,
                                    const GpuInfo& gpu, const UniqueStream& stream) {
  const QsaOnGpu on_gpu(c, gpu, stream);
  RowBits bits;
  for (const std::vector<QsaPiece>& pieces : cut) {
    HEARTH_ASSIGN_OR_RETURN(const QsaResult result, on_gpu.Run(pieces));
    // Sequence 0 comes first in every pass; what else there is only keeps the card busy.
    const uint32_t rows = pieces[0].rows;
    const auto take = [&](auto* to, const auto& from, size_t width) {
      to->insert(to->end(), from.begin(),
                 from.begin() + static_cast<ptrdiff_t>(size_t{rows} * width));
    };
    take(&bits.out, result.out, c.out_width());
    take(&bits.chosen, result.chosen, c.desc.attention.block_count_max);
    take(&bits.q, result.q, size_t{ActivationBlocks(c.out_width())} * 32);
  }
  return bits;
}

TEST_F(QsaAttend, BitsOfARowDependOnTheRowAlone) {
  for (const AttentionGeometry& a : {FlashNextAttention(), FlashletAttention()}) {
    for (KvFormat format : kFormats) {
      for (uint32_t base : {60u, 3000u}) {
        Prng prng(base);
        QsaCase c(&prng, DescOf(a, format, 16, 4096));
        c.AddSequence(&prng, base, 9);
        c.AddSequence(&prng, 3500, 5);
        const auto whole = RunInPieces(c, {{{0, 0, 9}}}, gpu(), stream());
        ASSERT_TRUE(whole.ok()) << whole.status();
        std::vector<std::vector<QsaPiece>> single;
        for (uint32_t i = 0; i < 9; ++i) single.push_back({{0, i, 1}});
        const std::vector<std::vector<std::vector<QsaPiece>>> cuts = {
            single,
            {{{0, 0, 2}}, {{0, 2, 7}}},
            {{{0, 0, 8}}, {{0, 8, 1}, {1, 0, 5}}},
            {{{0, 0, 3}, {1, 0, 2}}, {{0, 3, 4}, {1, 2, 1}}, {{0, 7, 2}}},
        };
        for (const auto& cut : cuts) {
          const auto bits = RunInPieces(c, cut, gpu(), stream());
          ASSERT_TRUE(bits.ok()) << bits.status();
          EXPECT_EQ(std::memcmp(bits->out.data(), whole->out.data(), whole->out.size() * 4), 0)
              << "head_dim " << a.head_dim << ", " << cut.size() << " passes";
          EXPECT_EQ(bits->chosen, whole->chosen);
          EXPECT_EQ(bits->q, whole->q);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth
