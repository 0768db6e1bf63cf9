// The hashed n-gram embedding: 16 table rows per token, gated per stream by how well they fit the
// residual, then a dilated causal convolution over time.
#include <algorithm>
#include <cmath>

#include "runtime/backend/cpu/pass.h"
#include "runtime/base/status.h"
#include "runtime/model/ngram_hash.h"

namespace hearth {
namespace {

void Norm(PassContext& pass, const float* x, float* y, std::span<const float> w, uint32_t rows) {
  const ModelGeometry& g = pass.geometry();
  pass.kernels.rms_norm.fn({.x = x,
                            .x_stride = g.stream_dim(),
                            .y = y,
                            .y_stride = g.stream_dim(),
                            .w = w.data(),
                            .w_count = g.stream_dim(),
                            .weight = NormWeight::kOnePlus,
                            .rows = rows,
                            .cols = g.stream_dim(),
                            .group = g.hidden,
                            .epsilon = g.norm_epsilon});
}

absl::Status LookUp(PassContext& pass) {
  const NgramGeometry& n = pass.geometry().ngram;
  PassBuffers& p = pass.buffers;
  for (const PassSegment& s : pass.segments) {
    for (uint32_t i = 0; i < s.rows; ++i) {
      NgramRows(n, s.sequence->tokens(), s.base + i,
                p.ngram_rows.subspan(size_t{s.row_begin + i} * n.head_count(), n.head_count()));
    }
  }
  const size_t count = size_t{pass.rows} * n.head_count();
  return pass.ngram_file->ReadRows(p.ngram_rows.first(count),
                                   p.ngram_embed.first(count * n.row_dim));
}

// The gate of one (row, stream): sigmoid of the signed square root of the scaled dot product.
float StreamGate(const float* key, const float* query, uint32_t hidden) {
  double dot = 0;
  for (uint32_t j = 0; j < hidden; ++j) dot += double{key[j]} * double{query[j]};
  const auto a = static_cast<float>(dot / std::sqrt(static_cast<double>(hidden)));
  const float root = std::sqrt(std::max(std::fabs(a), 1e-6f));
  const float v = a > 0 ? root : (a < 0 ? -root : 0.0f);
  return 1.0f / (1.0f + std::exp(-v));
}

// gated[s][j] = gate_s * value[j], into the query buffer.
void GateStreams(PassContext& pass, uint32_t row_begin, uint32_t row_end) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& p = pass.buffers;
  for (uint32_t row = row_begin; row < row_end; ++row) {
    const float* value = p.ngram_value.data() + size_t{row} * g.hidden;
    for (uint32_t s = 0; s < g.stream_count; ++s) {
      const size_t at = (size_t{row} * g.stream_count + s) * g.hidden;
      const float gate = StreamGate(p.ngram_key.data() + at, p.ngram_query.data() + at, g.hidden);
      for (uint32_t j = 0; j < g.hidden; ++j) p.ngram_query[at + j] = gate * value[j];
    }
  }
}

// out = silu(conv(norm(gated))) of one segment, into the key buffer; updates or keeps the history.
void ConvolveSegment(PassContext& pass, const NgramWeights& w, const PassSegment& s) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& p = pass.buffers;
  NgramState& state = s.sequence->ngram();
  const size_t d = g.stream_dim();
  const size_t rows_floats = s.rows * d;
  std::span<float> in = pass.phase == Phase::kWindow ? state.window : p.ngram_conv_in;
  std::copy(state.history.begin(), state.history.end(), in.begin());
  Norm(pass, p.ngram_query.data() + s.row_begin * d, in.data() + state.history.size(), w.norm_conv,
       s.rows);
  float* const out = p.ngram_key.data() + s.row_begin * d;
  pass.kernels.conv.fn({.x = in.data(),
                        .x_stride = g.stream_dim(),
                        .w = w.conv.data(),
                        .out = out,
                        .out_stride = g.stream_dim(),
                        .rows = s.rows,
                        .channel_begin = 0,
                        .channel_end = g.stream_dim(),
                        .taps = g.ngram.conv_taps,
                        .dilation = g.ngram.ngram_size});
  pass.kernels.silu.fn({.x = out, .y = out, .count = rows_floats});
  if (pass.phase == Phase::kPrompt) {
    std::copy_n(in.begin() + static_cast<ptrdiff_t>(rows_floats), state.history.size(),
                state.history.begin());
  }
}

}  // namespace

absl::Status AddNgram(PassContext& pass, const NgramWeights& w) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& p = pass.buffers;
  const uint32_t d = g.stream_dim();
  HEARTH_RETURN_IF_ERROR(LookUp(pass));
  pass.projector.Run({.x = p.ngram_embed.data(),
                      .x_stride = g.ngram.embed_dim(),
                      .rows = pass.rows,
                      .cols = g.ngram.embed_dim()},
                     p.quantized,
                     {{&w.key, p.ngram_key.data(), d}, {&w.value, p.ngram_value.data(), g.hidden}});
  ForRowRanges(pass, [&](uint32_t begin, uint32_t end) {
    const size_t at = size_t{begin} * d;
    Norm(pass, p.ngram_key.data() + at, p.ngram_key.data() + at, w.norm_key, end - begin);
    Norm(pass, p.h.data() + at, p.ngram_query.data() + at, w.norm_query, end - begin);
    GateStreams(pass, begin, end);
  });
  for (const PassSegment& s : pass.segments) ConvolveSegment(pass, w, s);
  const size_t count = size_t{pass.rows} * d;
  for (size_t i = 0; i < count; ++i) p.h[i] += p.ngram_query[i] + p.ngram_key[i];
  return absl::OkStatus();
}

}  // namespace hearth
