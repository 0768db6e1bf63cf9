// How dense matrices lie in a pack and in memory. One matrix is (rows, cols): rows are outputs,
// cols the reduction. FORMAT.md has worked examples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

#include "runtime/base/units.h"

namespace hearth {

// Values are on disk: append only.
enum class MatrixFormat : uint32_t {
  kF32 = 1,   // row-major fp32
  kBf16 = 2,  // row-major bf16
  kQ8 = 3,    // Q8_0 values (32 to a block, fp16 scale), 16 rows interleaved: see below
};

inline constexpr uint32_t kBandRows = 16;       // rows that are interleaved, one per 32-bit lane
inline constexpr uint32_t kQ8BlockValues = 32;  // values that share one fp16 scale

// Q8: cols % 32 == 0; rows are padded with zero rows to a multiple of 16. For each band of 16 rows:
//   codes   [cols/32][8][16][4] u8   block, step, row, k: value + 128, k = 32*block + 4*step +
//   (0..3) scales  [cols/32][16]       fp16 block, row
// A 64-byte line is one step: lane r holds four consecutive values of row r.
constexpr uint64_t Q8BandBytes(uint32_t cols) {
  return uint64_t{cols / kQ8BlockValues} * (kBandRows * kQ8BlockValues + kBandRows * 2);
}
constexpr uint32_t BandCount(uint32_t rows) { return (rows + kBandRows - 1) / kBandRows; }

constexpr uint64_t MatrixBytes(MatrixFormat format, uint32_t rows, uint32_t cols) {
  switch (format) {
    case MatrixFormat::kF32:
      return uint64_t{rows} * cols * 4;
    case MatrixFormat::kBf16:
      return uint64_t{rows} * cols * 2;
    case MatrixFormat::kQ8:
      return BandCount(rows) * Q8BandBytes(cols);
  }
  return 0;
}

// Borrowed view of one matrix; the owner outlives it. `data` is 64-byte aligned.
struct MatrixView {
  MatrixFormat format = MatrixFormat::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::span<const std::byte> data;  // MatrixBytes(format, rows, cols)
};

}  // namespace hearth
