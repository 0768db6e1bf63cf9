// Routed experts in XT: the definition. Contract: cpu_kernels/ops/xt.h; layout:
// pack/format/xt_layout.h.
#include "cpu_kernels/scalar/expert_xt.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "cpu_kernels/scalar/exp.h"
#include "pack/format/float_codes.h"
#include "pack/format/xt_code.h"
#include "pack/format/xt_matrix.h"
#include "runtime/base/load.h"

namespace hearth::scalar {
namespace {

struct Matrix {
  XtShape shape;
  const std::byte* codes;
  float multiplier;

  static Matrix Of(const ExpertLayout& layout, const std::byte* blob, Projection p) {
    return {layout.xt_shape(p), blob + layout.projection_offset_bytes(p),
            Load<float>(blob + layout.scale_offset_bytes(p))};
  }
  float RowFactor(uint32_t row) const {
    return DecodeFp16(Load<uint16_t>(codes + shape.scale_offset_bytes() + size_t{row} * 2)) *
           multiplier;
  }
};

constexpr uint32_t kRowsAtOnce = 8;  // that share the decoding of a band

using BandSums = std::array<std::array<int32_t, kBandRows>, kRowsAtOnce>;
using BandValues = std::array<std::array<float, kBandRows>, kRowsAtOnce>;

void AddBlock(const XtLevels& levels, const int8_t* q, std::array<int32_t, kBandRows>* sums) {
  for (size_t step = 0; step < kXtStepsPerChunk; ++step) {
    for (size_t lane = 0; lane < kXtLaneCount; ++lane) {
      (*sums)[lane / 4] +=
          (levels[step][lane] + static_cast<int>(kXtLevelOffset)) * q[step * 4 + lane % 4];
    }
  }
}

// The outputs of one band for all rows of x, at most kRowsAtOnce.
BandValues DotBand(const Matrix& m, uint32_t band, const XtRows& x) {
  BandSums sums{};
  for (uint32_t block = 0; block < m.shape.block_count(); ++block) {
    XtLevels levels;
    DecodeXtChunk(m.shape, m.codes, block, band, &levels);
    for (size_t t = 0; t < x.rows; ++t) {
      AddBlock(levels, x.q + t * x.cols + size_t{block} * kXtBlockCols, &sums[t]);
    }
  }
  BandValues y{};
  for (size_t t = 0; t < x.rows; ++t) {
    for (uint32_t r = 0; r < kBandRows && band * kBandRows + r < m.shape.rows; ++r) {
      const int32_t total = sums[t][r] - static_cast<int>(kXtLevelOffset) * x.sum[t];
      y[t][r] = static_cast<float>(total) * x.scale[t] * m.RowFactor(band * kBandRows + r);
    }
  }
  return y;
}

// The rows of one band in the columns of one rotation block, as the kF32 layout has them.
void DecodeBlock(const Matrix& m, uint32_t band, uint32_t first_col, uint32_t cols,
                 std::byte* into) {
  std::array<XtLevels, kRotationBlockMax / kXtBlockCols> levels;
  for (uint32_t block = 0; block < cols / kXtBlockCols; ++block) {
    DecodeXtChunk(m.shape, m.codes, first_col / kXtBlockCols + block, band, &levels[block]);
  }
  for (uint32_t lane = 0; lane < kBandRows; ++lane) {
    const uint32_t row = band * kBandRows + lane;
    const float factor = row < m.shape.rows ? m.RowFactor(row) : 0.0f;
    std::array<float, kRotationBlockMax> w;
    for (uint32_t k = 0; k < cols; ++k) {
      w[k] = static_cast<float>(levels[k / 32][k % 32 / 4][lane * 4 + k % 4]) * factor;
    }
    UnrotateXtBlock(first_col, std::span(w).first(cols));
    for (size_t k = 0; k < cols; ++k) {
      const float value = row < m.shape.rows ? w[k] : 0.0f;
      std::memcpy(into + (k * kBandRows + lane) * 4, &value, sizeof(value));
    }
  }
}

}  // namespace

void GateUpXt(const ExpertGateUpArgs& args) {
  const Matrix gate = Matrix::Of(*args.layout, args.blob, Projection::kGate);
  const Matrix up = Matrix::Of(*args.layout, args.blob, Projection::kUp);
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    const uint32_t lanes = std::min(kBandRows, args.layout->width - band * kBandRows);
    for (uint32_t first = 0; first < args.rows; first += kRowsAtOnce) {
      const XtRows x = args.xt.Slice(first, std::min(kRowsAtOnce, args.rows - first));
      const BandValues g = DotBand(gate, band, x);
      const BandValues u = DotBand(up, band, x);
      for (size_t t = 0; t < x.rows; ++t) {
        float* h = args.h + (first + t) * args.h_stride + size_t{band} * kBandRows;
        for (uint32_t lane = 0; lane < lanes; ++lane) h[lane] = SiluOf(g[t][lane]) * u[t][lane];
      }
    }
  }
}

void DownXt(const ExpertDownArgs& args) {
  const Matrix down = Matrix::Of(*args.layout, args.blob, Projection::kDown);
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    const uint32_t lanes = std::min(kBandRows, args.layout->hidden - band * kBandRows);
    for (uint32_t first = 0; first < args.rows; first += kRowsAtOnce) {
      const XtRows h = args.ht.Slice(first, std::min(kRowsAtOnce, args.rows - first));
      const BandValues y = DotBand(down, band, h);
      for (size_t t = 0; t < h.rows; ++t) {
        std::copy_n(y[t].begin(), lanes,
                    args.y + (first + t) * args.y_stride + size_t{band} * kBandRows);
      }
    }
  }
}

void DecodeXt(const DecodeExpertArgs& args) {
  const ExpertLayout f32 = {ExpertFormat::kF32, args.layout->hidden, args.layout->width};
  for (const Projection p : kProjections) {
    const Matrix m = Matrix::Of(*args.layout, args.blob, p);
    const uint32_t step = RotationBlock(m.shape.cols);
    for (uint32_t band = 0; band < m.shape.band_count(); ++band) {
      std::byte* out = args.f32_blob + f32.projection_offset_bytes(p) + band * f32.band_bytes(p);
      for (uint32_t col = 0; col < m.shape.cols; col += step) {
        DecodeBlock(m, band, col, step, out + size_t{col} * kBandRows * 4);
      }
    }
  }
}

}  // namespace hearth::scalar
