// The append of sparse attention against its formulas in double precision: norms, rotation, caches
// in both formats, the ring of raw keys and the pooled blocks.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/gpu_kernels/attention/qsa_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

struct NormAndAngles {
  std::span<const float> weight;
  const AttentionGeometry& geometry;
  uint32_t position;
  double epsilon;
};

std::vector<double> NormalisedAndRotated(std::vector<double> x, const NormAndAngles& n) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + n.epsilon);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * (1.0 + n.weight[i]);
  const uint32_t half = n.geometry.rotary_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const double angle = n.position * std::pow(n.geometry.rope_theta, -2.0 * i / (2 * half));
    const double a = x[i];
    const double b = x[i + half];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + half] = b * std::cos(angle) + a * std::sin(angle);
  }
  return x;
}

std::vector<double> Doubles(const std::vector<float>& from, size_t begin, size_t count) {
  return {from.begin() + static_cast<ptrdiff_t>(begin),
          from.begin() + static_cast<ptrdiff_t>(begin + count)};
}

// Largest error over the largest value.
double RelativeError(const std::vector<double>& expected, const std::vector<double>& actual) {
  double error = 0;
  double size = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = std::abs(expected[i] - actual[i]);
    error = e == e ? std::max(error, e) : INFINITY;
    size = std::max(size, std::abs(expected[i]));
  }
  return error / size;
}

constexpr double kFp32Tolerance = 2e-6;

struct Checked {
  const QsaCase& c;
  const QsaSequence& s;
  const QsaHistory& after;
  const QsaResult& result;
  uint32_t row_begin;  // of the pass

  void Queries(uint32_t r) const {
    const AttentionGeometry& a = c.desc.attention;
    for (uint32_t h = 0; h < a.head_count; ++h) {
      const size_t at = size_t{h} * 2 * a.head_dim;
      const std::vector<double> expected =
          NormalisedAndRotated(Doubles(s.qg, r * c.qg_width() + at, a.head_dim),
                               {c.q_norm, a, s.base + r, c.desc.norm_epsilon});
      const size_t out = (row_begin + r) * c.qg_width() + at;
      EXPECT_LT(RelativeError(expected, Doubles(result.qg, out, a.head_dim)), kFp32Tolerance);
      EXPECT_EQ(Doubles(result.qg, out + a.head_dim, a.head_dim),
                Doubles(s.qg, r * c.qg_width() + at + a.head_dim, a.head_dim));
    }
    for (uint32_t h = 0; h < a.indexer_head_count; ++h) {
      const size_t at = size_t{h} * a.indexer_head_dim;
      const std::vector<double> expected =
          NormalisedAndRotated(Doubles(s.index, r * c.index_width() + at, a.indexer_head_dim),
                               {c.index_q_norm, a, s.base + r, c.desc.norm_epsilon});
      EXPECT_LT(
          RelativeError(expected, Doubles(result.index, (row_begin + r) * c.index_width() + at,
                                          a.indexer_head_dim)),
          kFp32Tolerance);
    }
  }

  // One head in the cache. A value between two steps of the format may take either.
  void Cached(const std::vector<double>& expected, const std::vector<std::byte>& cache,
              const std::vector<float>& scales, size_t head) const {
    double largest = 0;
    for (double x : expected) largest = std::max(largest, std::abs(x));
    if (c.desc.kv_format == KvFormat::kInt8) {
      EXPECT_NEAR(scales[head], largest / 127, largest / 127 * kFp32Tolerance);
    }
    for (size_t d = 0; d < expected.size(); ++d) {
      const double allowed = c.desc.kv_format == KvFormat::kInt8
                                 ? largest / 127 * 0.5 * (1 + 1e-3)
                                 : std::abs(expected[d]) * 0x1p-8 + largest * kFp32Tolerance;
      ASSERT_NEAR(CacheValue(c.desc, cache, scales, head, d), expected[d], allowed);
    }
  }

  void KeysAndValues(uint32_t r) const {
    const AttentionGeometry& a = c.desc.attention;
    for (uint32_t h = 0; h < a.kv_head_count; ++h) {
      const size_t from = r * c.kv_width() + size_t{h} * a.head_dim;
      const size_t head = size_t{s.base + r} * a.kv_head_count + h;
      Cached(NormalisedAndRotated(Doubles(s.k, from, a.head_dim),
                                  {c.k_norm, a, s.base + r, c.desc.norm_epsilon}),
             after.k, after.k_scale, head);
      Cached(Doubles(s.v, from, a.head_dim), after.v, after.v_scale, head);
    }
  }

  // The raw key of a position of this pass or of one that its ring still holds from before.
  std::vector<double> RawKey(uint32_t position) const {
    const AttentionGeometry& a = c.desc.attention;
    if (position < s.base) {
      return Doubles(s.past.raw_keys, position % c.ring_rows * a.indexer_head_dim,
                     a.indexer_head_dim);
    }
    return Doubles(
        s.index,
        (position - s.base) * c.index_width() + size_t{a.indexer_head_count} * a.indexer_head_dim,
        a.indexer_head_dim);
  }

  void Blocks() const {
    const AttentionGeometry& a = c.desc.attention;
    const size_t dim = a.indexer_head_dim;
    const uint32_t first = s.base / a.block_tokens;
    const uint32_t complete = (s.base + s.rows) / a.block_tokens;
    for (uint32_t b = 0; b < after.block_keys.size() / dim; ++b) {
      const std::vector<double> actual = Doubles(after.block_keys, b * dim, dim);
      if (b < first || b >= complete) {
        EXPECT_EQ(actual, Doubles(s.past.block_keys, b * dim, dim)) << "block " << b;
        continue;
      }
      std::vector<double> mean(dim);
      for (uint32_t i = 0; i < a.block_tokens; ++i) {
        const std::vector<double> raw = RawKey(b * a.block_tokens + i);
        for (size_t d = 0; d < dim; ++d) mean[d] += raw[d] / a.block_tokens;
      }
      const std::vector<double> expected =
          NormalisedAndRotated(mean, {c.index_k_norm, a, b * a.block_tokens, c.desc.norm_epsilon});
      EXPECT_LT(RelativeError(expected, actual), kFp32Tolerance) << "block " << b;
    }
  }

  void Ring() const {
    const AttentionGeometry& a = c.desc.attention;
    const uint32_t end = s.base + s.rows;
    for (uint32_t position = end > c.ring_rows ? end - c.ring_rows : 0; position < end;
         ++position) {
      EXPECT_EQ(
          Doubles(after.raw_keys, position % c.ring_rows * a.indexer_head_dim, a.indexer_head_dim),
          RawKey(position))
          << "position " << position;
    }
  }
};

using QsaAppend = OnGpu;

struct Shape {
  uint32_t base, rows;
};

void CheckAppend(const QsaDesc& desc, const std::vector<Shape>& shapes, const GpuInfo& gpu,
                 const UniqueStream& stream) {
  Prng prng(desc.attention.head_dim + shapes.size());
  QsaCase c(&prng, desc);
  std::vector<QsaPiece> pieces;
  for (const Shape& shape : shapes) {
    c.AddSequence(&prng, shape.base, shape.rows);
    pieces.push_back({.sequence = static_cast<uint32_t>(pieces.size()), .rows = shape.rows});
  }
  const QsaOnGpu on_gpu(c, gpu, stream);
  const QsaPass pass = on_gpu.Pass(pieces);
  ASSERT_TRUE(pass.Append(stream.view()).ok());
  const absl::Status status = stream.Synchronize();
  ASSERT_TRUE(status.ok()) << status;
  const QsaResult result = pass.Read();
  uint32_t row_begin = 0;
  for (size_t i = 0; i < c.sequences.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("head_dim ", desc.attention.head_dim, " sequence ", i));
    const QsaHistory after = on_gpu.state(i).Read();
    const Checked checked = {c, c.sequences[i], after, result, row_begin};
    for (uint32_t r = 0; r < c.sequences[i].rows; ++r) {
      checked.Queries(r);
      checked.KeysAndValues(r);
    }
    checked.Blocks();
    checked.Ring();
    row_begin += c.sequences[i].rows;
  }
}

QsaDesc DescOf(const AttentionGeometry& a, KvFormat format, uint32_t rows) {
  return {.attention = a,
          .norm_epsilon = 1e-6f,
          .kv_format = format,
          .rows_max = rows,
          .context_max = 480};
}

TEST_F(QsaAppend, WindowsOfSeveralSequences) {
  for (const AttentionGeometry& a : {FlashNextAttention(), FlashletAttention(), TinyAttention(),
                                     OddAttention(), NarrowAttention()}) {
    for (KvFormat format : {KvFormat::kBf16, KvFormat::kInt8}) {
      CheckAppend(DescOf(a, format, 16), {{0, 1}, {5, 9}, {127, 1}, {130, 2}, {3, 3}}, gpu(),
                  stream());
    }
  }
}

// Longer than the ring, from every place within a block.
TEST_F(QsaAppend, Prompts) {
  for (const AttentionGeometry& a : {FlashletAttention(), OddAttention()}) {
    CheckAppend(DescOf(a, KvFormat::kBf16, 600), {{0, 70}, {33, 90}, {34, 91}, {35, 200}}, gpu(),
                stream());
  }
}

}  // namespace
}  // namespace hearth
