// Shared by the kernel tests: the rows of the kernel table that this machine can run, random
// inputs, and output buffers whose every byte can be compared, so that a stray write shows.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"

namespace hearth {

inline std::vector<const CpuKernels*> SupportedKernels() {
  std::vector<const CpuKernels*> rows;
  const CpuFeatures have = DetectCpuFeatures();
  for (const CpuKernels& row : AllCpuKernels()) {
    if (Supports(have, row.isa)) rows.push_back(&row);
  }
  return rows;
}

inline const CpuKernels& ScalarKernels() { return *FindCpuKernels("scalar"); }

// A test that runs once for each supported row; kernels() is the row under test.
class EachIsa : public testing::TestWithParam<const CpuKernels*> {
 protected:
  const CpuKernels& kernels() const { return *GetParam(); }
};

inline std::string IsaParamName(const testing::TestParamInfo<const CpuKernels*>& info) {
  return std::string(IsaName(info.param->isa));
}

// A NaN of this payload marks what no kernel has written.
inline constexpr uint32_t kUnwrittenBits = 0x7FC0BEEFu;
inline constexpr size_t kGuardFloats = 32;

// An output of `count` floats between guards, all of it marked as unwritten.
class OutputBuffer {
 public:
  explicit OutputBuffer(size_t count)
      : values_(count + 2 * kGuardFloats, std::bit_cast<float>(kUnwrittenBits)) {}
  float* data() { return values_.data() + kGuardFloats; }
  float operator[](size_t i) const { return values_[kGuardFloats + i]; }
  bool Written(size_t i) const { return std::bit_cast<uint32_t>((*this)[i]) != kUnwrittenBits; }
  // Index of the first differing float, guards included and NaNs by their being one; -1 when equal.
  static ptrdiff_t FirstDifference(const OutputBuffer& a, const OutputBuffer& b) {
    for (size_t i = 0; i < a.values_.size(); ++i) {
      const float x = a.values_[i];
      const float y = b.values_[i];
      const bool computed_nans = x != x && y != y && std::bit_cast<uint32_t>(x) != kUnwrittenBits &&
                                 std::bit_cast<uint32_t>(y) != kUnwrittenBits;
      if (!computed_nans && std::bit_cast<uint32_t>(x) != std::bit_cast<uint32_t>(y)) {
        return static_cast<ptrdiff_t>(i) - static_cast<ptrdiff_t>(kGuardFloats);
      }
    }
    return -static_cast<ptrdiff_t>(kGuardFloats) - 1;
  }

 private:
  std::vector<float> values_;
};

inline void ExpectSameBits(const OutputBuffer& expected, const OutputBuffer& actual,
                           const std::string& what) {
  const ptrdiff_t at = OutputBuffer::FirstDifference(expected, actual);
  if (at < -static_cast<ptrdiff_t>(kGuardFloats)) return;
  if (at < 0) {
    ADD_FAILURE() << what << ": a write before the output, at float " << at;
    return;
  }
  ADD_FAILURE() << what << ": float " << at << " is " << actual[static_cast<size_t>(at)]
                << ", the definition gives " << expected[static_cast<size_t>(at)];
}

inline float RandomFloat(Prng* prng, float magnitude) {
  return static_cast<float>((prng->Uniform() * 2 - 1) * magnitude);
}

inline std::vector<float> RandomFloats(Prng* prng, size_t count, float magnitude) {
  std::vector<float> values(count);
  for (float& v : values) v = RandomFloat(prng, magnitude);
  return values;
}

// Activations of many magnitudes, with zeros, negative zeros, whole blocks of zeros and subnormals.
inline std::vector<float> WildFloats(Prng* prng, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t block_kind = SplitMix64(i / 32) % 8;
    const float scale = block_kind == 0   ? 0.0f
                        : block_kind == 1 ? 1e-43f
                        : block_kind == 2 ? 1e4f
                                          : 1.0f;
    const uint64_t kind = prng->Below(16);
    values[i] = kind == 0 ? 0.0f : kind == 1 ? -0.0f : RandomFloat(prng, scale);
  }
  return values;
}

// Owner of quantised rows.
struct QuantizedBuffer {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum16;
  uint32_t rows = 0;
  uint32_t cols = 0;

  QuantizedBuffer(uint32_t rows_in, uint32_t cols_in)
      : q(size_t{rows_in} * ActivationBlocks(cols_in) * 32),
        scale(size_t{rows_in} * ActivationBlocks(cols_in)),
        sum16(size_t{rows_in} * ActivationBlocks(cols_in) * 2),
        rows(rows_in),
        cols(cols_in) {}
  QuantizeRowsArgs ArgsFor(const std::vector<float>& x) {
    return {.x = x.data(),
            .x_stride = cols,
            .rows = rows,
            .cols = cols,
            .q = q.data(),
            .scale = scale.data(),
            .sum16 = sum16.data()};
  }
  QuantizedRows View() const { return {q.data(), scale.data(), sum16.data(), rows, cols}; }
};

inline QuantizedBuffer Quantized(const std::vector<float>& x, uint32_t rows, uint32_t cols) {
  QuantizedBuffer buffer(rows, cols);
  ScalarKernels().quantize_rows(buffer.ArgsFor(x));
  return buffer;
}

}  // namespace hearth
