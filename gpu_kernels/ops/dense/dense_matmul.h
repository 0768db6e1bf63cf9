// Dense matrix times activation rows on a GPU: y[t][n] = act(sum over k of w[n][k] * x[t][k]).
//
// Windows (rows <= kMatmulRowsMax): own kernels that read every weight once; several matrices over
// the same x go into one launch. The bits of a row depend on its own x and the weights alone, not
// on how many rows the call has. Prompts: products on tensor cores, deterministic; a row's bits may
// depend on which of the two ran, not on the other rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "pack/format/matrix_layout.h"

namespace hearth {

inline constexpr uint32_t kMatmulRowsMax = 16;    // rows of a window product
inline constexpr uint32_t kMatmulOutputsMax = 6;  // matrices of one launch

enum class Activation : uint8_t {
  kNone,
  kSilu,    // silu(x * scale_in)
  kSigmoid  // scale_out * sigmoid(x * scale_in)
};

struct DeviceMatrix {  // device memory, laid out as pack/format/matrix_layout.h
  MatrixFormat format = MatrixFormat::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  const std::byte* data = nullptr;  // 64-byte aligned
};

struct MatmulOutput {
  DeviceMatrix w;
  float* y = nullptr;     // (rows, w.rows), row stride y_stride
  uint32_t y_stride = 0;  // elements
  Activation activation = Activation::kNone;
  float scale_in = 1;
  float scale_out = 1;
};

// Activations in the forms that weights may want; device. A Q8 matrix reads the quantised form, the
// others fp32; a form that no matrix of the launch reads may be null.
struct DeviceRows {
  const float* x = nullptr;  // (rows, cols), row stride x_stride
  uint32_t x_stride = 0;
  const int8_t* q = nullptr;  // as QuantizedRows (cpu_kernels/ops/activation.h), cols of it
  const float* scale = nullptr;
  const int32_t* sum16 = nullptr;  // not read by the products of this folder
};

struct DenseMatmulArgs {
  DeviceRows x;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::array<MatmulOutput, kMatmulOutputsMax> outputs;
  uint32_t output_count = 0;
};

// 1 <= rows <= kMatmulRowsMax, 1 <= output_count. cols of every matrix is args.cols: a multiple of
// 32 for Q8 and of 8 otherwise. x and q on 16 bytes, x_stride a multiple of 4. y must not overlap
// what the launch reads. On sm_90 and later the weights, which the launch before this one in the
// stream must not write, are read while that one still runs. Enqueues and returns; InvalidArgument
// names what does not fit.
absl::Status LaunchDenseMatmul(const DenseMatmulArgs& args, CudaStreamView stream);

}  // namespace hearth
