// The n-gram consumer on the GPU against its composition of scalar kernels, over windows with
// partial commits and prompts longer than the ring.
#include <algorithm>
#include <cmath>
#include <deque>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/mixer/ngram.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/mixer/pass_fixture.h"

namespace hearth {
namespace {

constexpr uint32_t kWindowRows = 9;
constexpr uint32_t kRingRows = 32;
constexpr float kEpsilon = 1e-6f;

struct NgramCase {
  uint32_t streams, hidden, taps, dilation;
  std::vector<float> norm_key, norm_query, norm_conv, conv;

  NgramCase(uint32_t s, uint32_t d, uint32_t t, uint32_t dil)
      : streams(s), hidden(d), taps(t), dilation(dil) {
    Prng prng(s * d + t);
    norm_key = RandomFloats(&prng, width(), 0.5f);
    norm_query = RandomFloats(&prng, width(), 0.5f);
    norm_conv = RandomFloats(&prng, width(), 0.5f);
    conv = RandomFloats(&prng, t * width(), 0.5f);
  }
  size_t width() const { return size_t{streams} * hidden; }
  size_t history_rows() const { return size_t{taps - 1} * dilation; }
};

struct NgramRows {
  uint32_t rows = 0;
  std::vector<float> key, value, h;

  static NgramRows Random(const NgramCase& c, uint32_t rows, Prng* prng) {
    return {rows, RandomFloats(prng, rows * c.width(), 2),
            RandomFloats(prng, size_t{rows} * c.hidden, 2),
            RandomFloats(prng, rows * c.width(), 1)};
  }
  void Append(const NgramRows& more) {
    rows += more.rows;
    key.insert(key.end(), more.key.begin(), more.key.end());
    value.insert(value.end(), more.value.begin(), more.value.end());
    h.insert(h.end(), more.h.begin(), more.h.end());
  }
};

std::vector<float> Normalised(const NgramCase& c, const std::vector<float>& x,
                              const std::vector<float>& w) {
  std::vector<float> y(x.size());
  const auto width = static_cast<uint32_t>(c.width());
  ScalarKernels().rms_norm.fn({.x = x.data(),
                               .x_stride = width,
                               .y = y.data(),
                               .y_stride = width,
                               .w = w.data(),
                               .w_count = width,
                               .weight = NormWeight::kOnePlus,
                               .rows = static_cast<uint32_t>(x.size() / width),
                               .cols = width,
                               .group = c.hidden,
                               .epsilon = kEpsilon});
  return y;
}

float GateOf(const float* key, const float* query, uint32_t hidden) {
  double dot = 0;
  for (uint32_t j = 0; j < hidden; ++j) dot += double{key[j]} * double{query[j]};
  const auto a = static_cast<float>(dot / std::sqrt(static_cast<double>(hidden)));
  const float root = std::sqrt(std::max(std::fabs(a), 1e-6f));
  const float v = a > 0 ? root : (a < 0 ? -root : 0.0f);
  return 1.0f / (1.0f + std::exp(-v));
}

// One sequence on the host.
class PlainNgram {
 public:
  explicit PlainNgram(const NgramCase& c) : case_(&c), history_(c.history_rows() * c.width()) {}

  // The new h of the rows; the history then holds `kept` of them.
  std::vector<float> Run(const NgramRows& rows, uint32_t kept) {
    const NgramCase& c = *case_;
    const size_t width = c.width();
    const std::vector<float> key = Normalised(c, rows.key, c.norm_key);
    const std::vector<float> query = Normalised(c, rows.h, c.norm_query);
    std::vector<float> gated(rows.rows * width);
    for (size_t group = 0; group < size_t{rows.rows} * c.streams; ++group) {
      const float gate = GateOf(&key[group * c.hidden], &query[group * c.hidden], c.hidden);
      const float* value = &rows.value[group / c.streams * c.hidden];
      for (uint32_t j = 0; j < c.hidden; ++j) gated[group * c.hidden + j] = gate * value[j];
    }
    const std::vector<float> x = Normalised(c, gated, c.norm_conv);
    std::vector<float> in = history_;
    in.insert(in.end(), x.begin(), x.end());
    std::vector<float> out(gated.size());
    ScalarKernels().conv.fn({.x = in.data(),
                             .x_stride = static_cast<uint32_t>(width),
                             .w = c.conv.data(),
                             .out = out.data(),
                             .out_stride = static_cast<uint32_t>(width),
                             .rows = rows.rows,
                             .channel_begin = 0,
                             .channel_end = static_cast<uint32_t>(width),
                             .taps = c.taps,
                             .dilation = c.dilation});
    ScalarKernels().silu.fn({.x = out.data(), .y = out.data(), .count = out.size()});
    for (size_t i = 0; i < out.size(); ++i) out[i] = rows.h[i] + (gated[i] + out[i]);
    const auto first = in.begin() + static_cast<ptrdiff_t>(kept * width);
    history_.assign(first, first + static_cast<ptrdiff_t>(history_.size()));
    return out;
  }

 private:
  const NgramCase* case_;
  std::vector<float> history_;
};

struct Sequence {
  PlainNgram plain;
  DeviceArray<float> ring;
  uint32_t base = 0;
};

class Ngram : public OnGpu {
 protected:
  std::vector<float> Run(const NgramCase& c, std::vector<GpuSegment> segments,
                         const NgramRows& rows, bool window) {
    const UniqueStream& s = stream();
    const DevicePass pass(s, std::move(segments), kWindowRows, kRingRows);
    const DeviceArray<float> key(s, rows.key), value(s, rows.value), h(s, rows.h);
    const DeviceArray<float> norm_key(s, c.norm_key), norm_query(s, c.norm_query);
    const DeviceArray<float> norm_conv(s, c.norm_conv), conv(s, c.conv);
    const DeviceArray<float> gated(s, rows.h.size()), conv_in(s, rows.h.size());
    const absl::Status status = LaunchNgram({.pass = pass.table(),
                                             .key = key.data(),
                                             .value = value.data(),
                                             .norm_key = norm_key.data(),
                                             .norm_query = norm_query.data(),
                                             .norm_conv = norm_conv.data(),
                                             .conv = conv.data(),
                                             .h = h.data(),
                                             .gated = gated.data(),
                                             .conv_in = conv_in.data(),
                                             .epsilon = kEpsilon,
                                             .streams = c.streams,
                                             .hidden = c.hidden,
                                             .taps = c.taps,
                                             .dilation = c.dilation,
                                             .window = window},
                                            s.view());
    EXPECT_TRUE(status.ok()) << status;
    return h.Read();
  }
};

TEST_F(Ngram, PassesFollowThePlainComposition) {
  Prng prng(81);
  const NgramCase cases[] = {{4, 64, 4, 3}, {4, 256, 4, 3}, {2, 96, 3, 2}, {4, 2560, 4, 3}};
  for (const NgramCase& c : cases) {
    std::deque<Sequence> sequences;
    for (int i = 0; i < 3; ++i) {
      sequences.push_back(
          {PlainNgram(c), DeviceArray<float>(stream(), std::vector<float>(kRingRows * c.width()))});
    }
    for (int step = 0; step < 8; ++step) {
      const bool window = step % 3 != 2;
      std::vector<GpuSegment> segments;
      std::vector<NgramRows> of_segment;
      NgramRows all;
      for (Sequence& s : sequences) {
        const auto rows = static_cast<uint32_t>(1 + prng.Below(window ? kWindowRows : 75));
        segments.push_back({.ngram_ring = s.ring.data(), .rows = rows, .base = s.base});
        of_segment.push_back(NgramRows::Random(c, rows, &prng));
        all.Append(of_segment.back());
      }
      const std::vector<float> h = Run(c, segments, all, window);
      size_t at = 0;
      for (size_t i = 0; i < sequences.size(); ++i) {
        const uint32_t rows = of_segment[i].rows;
        const auto kept = window ? static_cast<uint32_t>(prng.Below(rows + 1)) : rows;
        const std::vector<float> expected = sequences[i].plain.Run(of_segment[i], kept);
        ExpectClose(expected, std::span(h).subspan(at, expected.size()),
                    absl::StrCat("hidden ", c.hidden, " step ", step, " sequence ", i));
        sequences[i].base += kept;
        at += expected.size();
      }
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_F(Ngram, BitsOfARowDoNotDependOnItsCompany) {
  Prng prng(82);
  const NgramCase c(4, 2560, 4, 3);
  const NgramRows rows = NgramRows::Random(c, 9, &prng);
  const std::vector<float> zeros(kRingRows * c.width());
  const DeviceArray<float> ring(stream(), zeros);
  const std::vector<float> together =
      Run(c, {{.ngram_ring = ring.data(), .rows = 9, .base = 5}}, rows, true);
  const DeviceArray<float> other_ring(stream(), zeros);
  std::vector<float> alone;
  for (uint32_t t = 0; t < 9; ++t) {
    NgramRows one;
    const auto part = [t](const std::vector<float>& from, size_t width) {
      return std::vector<float>(from.begin() + static_cast<ptrdiff_t>(t * width),
                                from.begin() + static_cast<ptrdiff_t>((t + 1) * width));
    };
    one = {1, part(rows.key, c.width()), part(rows.value, c.hidden), part(rows.h, c.width())};
    const std::vector<float> h =
        Run(c, {{.ngram_ring = other_ring.data(), .rows = 1, .base = 5 + t}}, one, true);
    alone.insert(alone.end(), h.begin(), h.end());
  }
  EXPECT_TRUE(SameBits(together, alone));
}

}  // namespace
}  // namespace hearth
