// Products of a pass's rows with dense matrices, for any number of rows.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/dense/dense_gemm.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"

namespace hearth {

// Rows in fp32 and, where `quantized.q` is there, as int8.
struct MatmulRows {
  const float* x = nullptr;  // (rows, cols), dense
  QuantizedOut quantized;
  uint32_t rows = 0;
  uint32_t cols = 0;
  GemmRoom room;  // of a prompt's product
};

inline bool IsQ8(const DeviceMatrix& m) { return m.rows != 0 && m.format == MatrixFormat::kQ8; }
// The form, if any of the matrices reads it.
inline QuantizedOut QuantizedFor(std::initializer_list<const DeviceMatrix*> matrices,
                                 const QuantizedOut& q) {
  for (const DeviceMatrix* m : matrices) {
    if (IsQ8(*m)) return q;
  }
  return {};
}

// Rows [first, ...) of a quantised form of `cols` columns.
QuantizedOut SliceQuantized(const QuantizedOut& q, uint32_t cols, uint64_t first);

// Matrices without rows are left out. Windows' kernels where `window`, which take the rows in
// pieces of kMatmulRowsMax; the prompts' otherwise. Which of the two decides a row's bits, the
// number of rows only as LaunchDenseGemm() says.
absl::Status EnqueueMatmul(const MatmulRows& x, std::initializer_list<MatmulOutput> outputs,
                           bool window, CudaStreamView stream);

}  // namespace hearth
