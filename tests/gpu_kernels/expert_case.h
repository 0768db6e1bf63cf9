// What the tests of every expert kernel share: a window's experts with the rows that chose them,
// rows of every kind, and floats that must have the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gpu_kernels/ops/expert_ffn.h"
#include "pack/format/expert_layout.h"
#include "tests/cpu_kernels/kernel_fixture.h"

namespace hearth {

// Expert i is blobs[i]; its rows are entries [item_begin[i], item_begin[i + 1]).
template <class Blob, class Rows>
struct ExpertCase {
  ExpertLayout layout;
  std::vector<Blob> blobs;
  std::vector<uint32_t> item_begin = {0};
  std::vector<ExpertFfnEntry> entries;
  Rows x;
  uint32_t y_rows = 0;
  uint32_t y_stride = 0;

  ExpertCase(const ExpertLayout& layout_in, Rows x_in)
      : layout(layout_in), x(std::move(x_in)), y_stride(layout_in.hidden + 3) {}

  // Distinct rows of x in any order; each entry has a row of y of its own, and every third row of y
  // belongs to nobody.
  void AddItem(Prng* prng, Blob blob, uint32_t rows) {
    std::vector<uint32_t> left(x.rows);
    for (uint32_t t = 0; t < x.rows; ++t) left[t] = t;
    for (uint32_t t = 0; t < rows; ++t) {
      std::swap(left[t], left[t + prng->Below(left.size() - t)]);
      entries.push_back({left[t], static_cast<uint32_t>(entries.size() * 3 / 2)});
    }
    blobs.push_back(std::move(blob));
    item_begin.push_back(static_cast<uint32_t>(entries.size()));
  }
  // Rows of y in an order of their own.
  void Finish(Prng* prng) {
    y_rows = static_cast<uint32_t>(entries.size() * 3 / 2 + 1);
    for (size_t i = 0; i < entries.size(); ++i) {
      std::swap(entries[i].y_row, entries[i + prng->Below(entries.size() - i)].y_row);
    }
  }
  uint32_t item_count() const { return static_cast<uint32_t>(blobs.size()); }
  uint32_t rows_max() const {
    uint32_t most = 0;
    for (size_t i = 0; i + 1 < item_begin.size(); ++i) {
      most = std::max(most, item_begin[i + 1] - item_begin[i]);
    }
    return most;
  }
};

// Rows of x of every kind: wild magnitudes, one that is all zero, one that is almost all zero.
inline std::vector<float> WindowRows(Prng* prng, uint32_t rows, uint32_t hidden) {
  std::vector<float> x = WildFloats(prng, size_t{rows} * hidden);
  if (rows > 1) std::fill_n(&x[hidden], hidden, 0.0f);
  if (rows > 2) {
    std::fill_n(&x[size_t{2} * hidden], hidden, -0.0f);
    x[size_t{2} * hidden + hidden / 2] = 3.0f;
  }
  return x;
}

// Eight rows: subnormal ones, ones that overflow, infinities and NaNs, which mark what depends on
// them.
inline std::vector<float> RowsAtTheEnds(Prng* prng, uint32_t hidden) {
  std::vector<float> x = RandomFloats(prng, 8 * hidden, 1);
  for (uint32_t k = 0; k < hidden; ++k) {
    x[0 * hidden + k] *= 1e-44f;
    x[1 * hidden + k] *= 1e-38f;
    x[2 * hidden + k] = k % 2 == 0 ? 127.0f : -127.0f;
    x[3 * hidden + k] = x[3 * hidden + k] > 0 ? 3e38f : -3e38f;
    x[4 * hidden + k] *= 1e36f;
    x[7 * hidden + k] *= 1e20f;
  }
  x[5 * hidden + 17] = std::numeric_limits<float>::quiet_NaN();
  x[6 * hidden + 333] = -std::numeric_limits<float>::infinity();
  return x;
}

enum class Nans { kNone, kAnyPayload };

inline void ExpectSameFloats(const std::vector<float>& expected, const std::vector<float>& actual,
                             Nans nans, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  const auto computed_nan = [](float v) {
    return v != v && std::bit_cast<uint32_t>(v) != kUnwrittenBits;
  };
  for (size_t i = 0; i < expected.size(); ++i) {
    const float a = expected[i];
    const float b = actual[i];
    if (nans == Nans::kAnyPayload && computed_nan(a) && computed_nan(b)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b))
        << what << ": float " << i << " is " << b << ", the CPU gives " << a;
  }
}

}  // namespace hearth
