// Arrays in device memory for the tests of the mixer's operations, and what these tests compare.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"
#include "tests/cpu_kernels/kernel_fixture.h"

namespace hearth {

// `count` values of device memory; what is not given a value holds bytes of 0xFF: NaNs.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const UniqueStream& stream, size_t count)
      : stream_(stream),
        count_(count),
        buffer_(
            *DeviceBuffer::Create(stream.view().gpu(), std::max<size_t>(count * sizeof(T), 1))) {
    EXPECT_TRUE(FillBytes(buffer_, std::byte{0xFF}, stream.view()).ok());
  }
  DeviceArray(const UniqueStream& stream, const std::vector<T>& values)
      : DeviceArray(stream, values.size()) {
    Write(values);
  }

  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  size_t count() const { return count_; }

  void Write(const std::vector<T>& values) {
    ASSERT_EQ(values.size(), count_);
    const absl::Status status =
        CopyToDevice(std::as_bytes(std::span(values)), buffer_, 0, stream_.view());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(stream_.Synchronize().ok());
  }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    absl::Status status =
        CopyToHost(buffer_, 0, std::as_writable_bytes(std::span(values)), stream_.view());
    EXPECT_TRUE(status.ok()) << status;
    status = stream_.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

 private:
  const UniqueStream& stream_;
  size_t count_;
  DeviceBuffer buffer_;
};

// Room for quantised rows on the device.
struct DeviceQuantized {
  uint32_t rows;
  uint32_t cols;
  DeviceArray<int8_t> q;
  DeviceArray<float> scale;
  DeviceArray<int32_t> sum16;

  DeviceQuantized(const UniqueStream& stream, uint32_t rows_in, uint32_t cols_in)
      : rows(rows_in),
        cols(cols_in),
        q(stream, size_t{rows_in} * ActivationBlocks(cols_in) * 32),
        scale(stream, size_t{rows_in} * ActivationBlocks(cols_in)),
        sum16(stream, size_t{rows_in} * ActivationBlocks(cols_in) * 2) {}
  QuantizedOut out() const { return {q.data(), scale.data(), sum16.data()}; }

  // The quantised rows are those of `x`, bit by bit.
  void ExpectFormOf(const std::vector<float>& x) const {
    QuantizedBuffer expected(rows, cols);
    ScalarKernels().quantize_rows.fn({.x = x.data(),
                                      .x_stride = cols,
                                      .rows = rows,
                                      .cols = cols,
                                      .q = expected.q.data(),
                                      .scale = expected.scale.data(),
                                      .sum16 = expected.sum16.data()});
    EXPECT_EQ(expected.q, q.Read());
    EXPECT_EQ(expected.scale, scale.Read());
    EXPECT_EQ(expected.sum16, sum16.Read());
  }
};

// ||actual - expected|| / ||expected||; a NaN that is not expected makes it a NaN.
inline double RelativeError(std::span<const float> expected, std::span<const float> actual) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (double{actual[i]} - expected[i]) * (double{actual[i]} - expected[i]);
    norm += double{expected[i]} * expected[i];
  }
  return norm == 0 ? difference : std::sqrt(difference / norm);
}

inline constexpr double kFloatTolerance = 1e-5;

inline void ExpectClose(std::span<const float> expected, std::span<const float> actual,
                        const std::string& what, double tolerance = kFloatTolerance) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  const double error = RelativeError(expected, actual);
  EXPECT_TRUE(error < tolerance) << what << ": relative error " << error;
}

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace hearth
