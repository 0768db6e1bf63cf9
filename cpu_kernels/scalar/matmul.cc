// Dense matrix times activation rows: the definition. Contract: cpu_kernels/ops/matmul.h.
#include <algorithm>
#include <array>
#include <cmath>

#include "cpu_kernels/scalar/kernels.h"
#include "pack/format/float_codes.h"
#include "pack/format/matrix_layout.h"
#include "runtime/base/load.h"

namespace hearth::scalar {
namespace {

// Row `lane` of one Q8 band times one activation row.
float DotQ8(const std::byte* band, uint32_t lane, uint32_t blocks, const int8_t* q,
            const float* x_scale) {
  const auto* codes = reinterpret_cast<const uint8_t*>(band);
  const std::byte* scales = band + size_t{blocks} * kBandRows * kQ8BlockValues;
  float acc = 0;
  for (size_t b = 0; b < blocks; ++b) {
    int32_t dot = 0;
    for (size_t k = 0; k < kQ8BlockValues; ++k) {
      const size_t line = b * 8 + k / 4;
      const int32_t value = codes[line * 64 + size_t{lane} * 4 + k % 4] - 128;
      dot += value * q[b * kQ8BlockValues + k];
    }
    const float w_scale = DecodeFp16(Load<uint16_t>(scales + (b * kBandRows + lane) * 2));
    acc = std::fma(w_scale * x_scale[b], static_cast<float>(dot), acc);
  }
  return acc;
}

// The sum over k in the sixteen-lane order; weight(k) is w[n][k] as fp32.
template <class Weight>
float DotSixteenLanes(const Weight& weight, const float* x, uint32_t cols) {
  std::array<float, 16> lanes = {};
  for (uint32_t k = 0; k < cols; ++k) lanes[k % 16] = std::fma(weight(k), x[k], lanes[k % 16]);
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace

void MatmulQ8(const MatmulQ8Args& args) {
  const uint32_t blocks = args.x.cols / kQ8BlockValues;
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    const std::byte* w = args.w + band * Q8BandBytes(args.x.cols);
    const uint32_t lanes = std::min(kBandRows, args.out_rows - band * kBandRows);
    for (size_t t = 0; t < args.x.rows; ++t) {
      const int8_t* q = args.x.q + t * blocks * kQ8BlockValues;
      const float* x_scale = args.x.scale + t * blocks;
      float* y = args.y + t * args.y_stride + size_t{band} * kBandRows;
      for (uint32_t lane = 0; lane < lanes; ++lane) y[lane] = DotQ8(w, lane, blocks, q, x_scale);
    }
  }
}

void MatmulBf16(const MatmulRowsArgs& args) {
  for (size_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + t * args.x_stride;
    for (size_t n = args.row_begin; n < args.row_end; ++n) {
      const std::byte* w = args.w + n * args.cols * 2;
      const auto weight = [w](size_t k) { return DecodeBf16(Load<uint16_t>(w + k * 2)); };
      args.y[t * args.y_stride + n] = DotSixteenLanes(weight, x, args.cols);
    }
  }
}

void MatmulF32(const MatmulRowsArgs& args) {
  for (size_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + t * args.x_stride;
    for (size_t n = args.row_begin; n < args.row_end; ++n) {
      const std::byte* w = args.w + n * args.cols * 4;
      const auto weight = [w](size_t k) { return Load<float>(w + k * 4); };
      args.y[t * args.y_stride + n] = DotSixteenLanes(weight, x, args.cols);
    }
  }
}

}  // namespace hearth::scalar
