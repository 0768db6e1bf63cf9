// What the tests and the benchmark of gpu_kernels/ops/dense share: matrices in pack layout with
// random values, their values as doubles, and vectors in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "pack/format/float_codes.h"
#include "pack/format/matrix_layout.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "tests/cpu_kernels/kernel_fixture.h"
#include "tests/gpu_kernels/device_copies.h"

namespace hearth {

// One matrix on the host.
struct HostMatrix {
  MatrixFormat format = MatrixFormat::kQ8;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<std::byte> bytes;

  static HostMatrix Random(Prng* prng, MatrixFormat format, uint32_t rows, uint32_t cols) {
    HostMatrix m{format, rows, cols, std::vector<std::byte>(MatrixBytes(format, rows, cols))};
    if (format != MatrixFormat::kQ8) {
      const uint32_t value_bytes = format == MatrixFormat::kBf16 ? 2 : 4;
      for (size_t i = 0; i < size_t{rows} * cols; ++i) {
        const float v = RandomFloat(prng, 0.1f);
        const uint16_t code = EncodeBf16(v);
        std::memcpy(&m.bytes[i * value_bytes],
                    value_bytes == 2 ? static_cast<const void*>(&code) : &v, value_bytes);
      }
      return m;
    }
    const size_t blocks = cols / kQ8BlockValues;
    for (uint32_t band = 0; band < BandCount(rows); ++band) {
      std::byte* at = m.bytes.data() + band * Q8BandBytes(cols);
      for (size_t i = 0; i < blocks * kBandRows * kQ8BlockValues; ++i) {
        at[i] = static_cast<std::byte>(1 + prng->Below(255));
      }
      for (size_t i = 0; i < blocks * kBandRows; ++i) {
        const uint16_t scale = EncodeFp16(static_cast<float>(prng->Uniform() * 2e-3));
        std::memcpy(at + blocks * kBandRows * kQ8BlockValues + i * 2, &scale, 2);
      }
    }
    return m;
  }
  double Value(uint32_t n, uint32_t k) const {
    const size_t flat = size_t{n} * cols + k;
    if (format == MatrixFormat::kF32) {
      float v;
      std::memcpy(&v, &bytes[flat * 4], 4);
      return v;
    }
    uint16_t code;
    if (format == MatrixFormat::kBf16) {
      std::memcpy(&code, &bytes[flat * 2], 2);
      return DecodeBf16(code);
    }
    const size_t blocks = cols / kQ8BlockValues;
    const std::byte* band = bytes.data() + n / kBandRows * Q8BandBytes(cols);
    const size_t r = n % kBandRows;
    std::memcpy(
        &code,
        band + blocks * kBandRows * kQ8BlockValues + (k / kQ8BlockValues * kBandRows + r) * 2, 2);
    const auto value = std::to_integer<int>(band[k / 4 * 64 + r * 4 + k % 4]) - 128;
    return static_cast<double>(DecodeFp16(code)) * value;
  }
};

// Matrices and rows of x on a GPU, y of each matrix between guards.
class DenseOnGpu {
 public:
  static absl::StatusOr<DenseOnGpu> Create(const std::vector<HostMatrix>& matrices,
                                           const std::vector<float>& x, uint32_t rows,
                                           const UniqueStream& stream) {
    DenseOnGpu on_gpu(rows, matrices.front().cols);
    const uint32_t cols = on_gpu.cols_;
    const bool quantised = cols % kQ8BlockValues == 0;
    const QuantizedBuffer xq = quantised ? Quantized(x, rows, cols) : QuantizedBuffer(rows, cols);
    HEARTH_RETURN_IF_ERROR(on_gpu.Add(x, stream));
    HEARTH_RETURN_IF_ERROR(on_gpu.Add(xq.q, stream));
    HEARTH_RETURN_IF_ERROR(on_gpu.Add(xq.scale, stream));
    for (const HostMatrix& m : matrices) {
      HEARTH_RETURN_IF_ERROR(on_gpu.Add(m.bytes, stream));
      HEARTH_RETURN_IF_ERROR(on_gpu.Add(OutputOf(m.rows, rows), stream));
      on_gpu.outputs_.push_back({.w = {m.format, m.rows, m.cols, nullptr}});
    }
    return on_gpu;
  }
  // Of `rows` rows between guards, unwritten.
  static std::vector<float> OutputOf(uint32_t w_rows, uint32_t rows) {
    return std::vector<float>(size_t{rows} * Stride(w_rows) + 2 * kGuardFloats,
                              std::bit_cast<float>(kUnwrittenBits));
  }
  static uint32_t Stride(uint32_t w_rows) { return w_rows + 5; }

  // Rows [first, first + count) of x into the same rows of y.
  DenseMatmulArgs Args(uint32_t first, uint32_t count) const {
    DenseMatmulArgs args;
    args.rows = count;
    args.cols = cols_;
    args.x = {.x = reinterpret_cast<const float*>(buffers_[0].data()) + size_t{first} * cols_,
              .x_stride = cols_,
              .q = reinterpret_cast<const int8_t*>(buffers_[1].data()) + size_t{first} * cols_,
              .scale = reinterpret_cast<const float*>(buffers_[2].data()) +
                       size_t{first} * (cols_ / kQ8BlockValues)};
    for (size_t i = 0; i < outputs_.size(); ++i) {
      MatmulOutput output = outputs_[i];
      output.w.data = buffers_[3 + 2 * i].data();
      output.y_stride = Stride(output.w.rows);
      output.y = reinterpret_cast<float*>(buffers_[4 + 2 * i].data()) + kGuardFloats +
                 size_t{first} * output.y_stride;
      args.outputs[args.output_count++] = output;
    }
    return args;
  }
  MatmulOutput* output(size_t i) { return &outputs_[i]; }
  absl::Status Read(size_t i, std::vector<float>* y, const UniqueStream& stream) const {
    *y = OutputOf(outputs_[i].w.rows, rows_);
    return ReadBack(buffers_[4 + 2 * i], y, stream);
  }
  absl::Status Poison(const UniqueStream& stream) const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::vector<float> unwritten = OutputOf(outputs_[i].w.rows, rows_);
      HEARTH_RETURN_IF_ERROR(
          CopyToDevice(std::as_bytes(std::span(unwritten)), buffers_[4 + 2 * i], 0, stream.view()));
      HEARTH_RETURN_IF_ERROR(stream.Synchronize());
    }
    return absl::OkStatus();
  }

 private:
  DenseOnGpu(uint32_t rows, uint32_t cols) : rows_(rows), cols_(cols) {}
  template <class T>
  absl::Status Add(const std::vector<T>& values, const UniqueStream& stream) {
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceCopy(values, stream));
    buffers_.push_back(std::move(buffer));
    return absl::OkStatus();
  }
  uint32_t rows_;
  uint32_t cols_;
  std::vector<DeviceBuffer> buffers_;  // x, q, scale; then data and y of each matrix
  std::vector<MatmulOutput> outputs_;
};

}  // namespace hearth
