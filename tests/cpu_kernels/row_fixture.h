// What the tests of the row kernels share: random rows, guarded outputs and the rows of the kernel
// table that this machine runs.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "runtime/base/prng.h"

namespace hearth {

inline std::vector<const CpuKernels*> SupportedRows() {
  std::vector<const CpuKernels*> rows;
  for (const CpuKernels& row : AllCpuKernels()) {
    if (Supports(DetectCpuFeatures(), row.isa)) rows.push_back(&row);
  }
  return rows;
}

inline const CpuKernels& ScalarRow() { return *FindCpuKernels("scalar"); }

inline std::string RowName(const CpuKernels& row) { return std::string(IsaName(row.isa)); }

inline float RandomFloat(Prng& prng, float low, float high) {
  return low + (high - low) * static_cast<float>(prng.Uniform());
}

inline std::vector<float> RandomFloats(Prng& prng, size_t count, float low = -2, float high = 2) {
  std::vector<float> values(count);
  for (float& value : values) value = RandomFloat(prng, low, high);
  return values;
}

// A buffer of `count` floats between two margins. Margins and inside start as one odd pattern, so
// that comparing whole buffers also finds writes into the gaps between rows.
class GuardedFloats {
 public:
  explicit GuardedFloats(size_t count) : count_(count), all_(count + 2 * kMargin, Pattern()) {}
  explicit GuardedFloats(const std::vector<float>& inside) : GuardedFloats(inside.size()) {
    std::copy(inside.begin(), inside.end(), all_.begin() + kMargin);
  }
  float* data() { return all_.data() + kMargin; }
  std::span<const float> inside() const { return {all_.data() + kMargin, count_}; }
  float operator[](size_t i) const { return all_[kMargin + i]; }
  static bool IsPattern(float value) {
    return std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(Pattern());
  }
  bool MarginsIntact() const {
    for (size_t i = 0; i < kMargin; ++i) {
      if (!IsPattern(all_[i]) || !IsPattern(all_[kMargin + count_ + i])) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kMargin = 32;
  static float Pattern() { return std::bit_cast<float>(0x4B2D0F1Eu); }
  size_t count_;
  std::vector<float> all_;
};

// The same bits everywhere, and both margins untouched.
inline ::testing::AssertionResult SameBits(const GuardedFloats& expected,
                                           const GuardedFloats& actual) {
  if (!expected.MarginsIntact()) return ::testing::AssertionFailure() << "expected: margin written";
  if (!actual.MarginsIntact()) return ::testing::AssertionFailure() << "actual: margin written";
  const std::span<const float> a = expected.inside();
  const std::span<const float> b = actual.inside();
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "other counts";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << ": expected " << a[i] << ", found " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Dimensions around the sixteen lanes of a vector.
inline constexpr uint32_t kOddDims[] = {1, 7, 16, 20, 33, 64, 130, 256};

}  // namespace hearth
