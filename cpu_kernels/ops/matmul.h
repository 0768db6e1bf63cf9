// Dense matrix times activation rows: y[t][n] = sum over k of w[n][k] * x[t][k], for any number of
// rows t. Each output is a function of its own row and weights alone: the bits do not depend on how
// many rows or bands one call covers, nor on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/activation.h"

namespace hearth {

// w in MatrixFormat::kQ8 (pack/format/matrix_layout.h), x quantised. For each output, blocks b in
// order:
//   acc = fma(w_scale[b] * x_scale[b], float(int32 dot of block b), acc), acc = 0 before
struct MatmulQ8Args {
  const std::byte* w = nullptr;  // (out_rows padded to bands, x.cols)
  QuantizedRows x;               // x.cols % 32 == 0
  float* y = nullptr;            // (x.rows, >= out_rows), row stride y_stride
  uint32_t y_stride = 0;
  uint32_t out_rows = 0;    // rows of w before padding; only these are written
  uint32_t band_begin = 0;  // this call's share, in bands of 16 rows
  uint32_t band_end = 0;
};

// w row-major fp32 or bf16. Sixteen accumulators, lane j over k = j, 16+j, 32+j, ... in order by
// fma; then lanes j and j+8 are added, then j and j+4, j+2, j+1.
struct MatmulRowsArgs {
  const std::byte* w = nullptr;  // (out_rows, cols) fp32 or bf16
  const float* x = nullptr;      // (rows, cols), row stride x_stride
  uint32_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float* y = nullptr;  // (rows, >= out_rows), row stride y_stride
  uint32_t y_stride = 0;
  uint32_t row_begin = 0;  // this call's share of w's rows
  uint32_t row_end = 0;
};

}  // namespace hearth
