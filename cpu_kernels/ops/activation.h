// fp32 activations as int8, in blocks of 32 values (canonical arithmetic: pack/FORMAT.md).
//   s = max|x| / 127 over the block; q = round-half-to-even(x / s), at most 127 in magnitude (the
//   bound matters for subnormal s only); s == 0 gives q = 0. A NaN or infinity in the block gives
//   such an s, and so marks every output that depends on it.
// A last block may be shorter; its missing values count as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth {

inline constexpr uint32_t kActivationBlockValues = 32;

constexpr uint32_t ActivationBlocks(uint32_t cols) {
  return (cols + kActivationBlockValues - 1) / kActivationBlockValues;
}

// Borrowed view of quantised rows. Strides follow from cols: B = ActivationBlocks(cols).
struct QuantizedRows {
  const int8_t* q = nullptr;       // (rows, 32 * B), 64-byte aligned rows when B is even
  const float* scale = nullptr;    // (rows, B)
  const int32_t* sum16 = nullptr;  // (rows, 2 * B): sum of q over each 16 values
  uint32_t rows = 0;
  uint32_t cols = 0;
  QuantizedRows Slice(uint32_t first, uint32_t count) const {
    const size_t b = ActivationBlocks(cols);
    return {q + first * b * 32, scale + first * b, sum16 + first * b * 2, count, cols};
  }
};

struct QuantizeRowsArgs {
  const float* x = nullptr;  // (rows, cols), row stride x_stride
  uint32_t x_stride = 0;     // elements, >= cols
  uint32_t rows = 0;
  uint32_t cols = 0;
  int8_t* q = nullptr;  // as QuantizedRows, written whole
  float* scale = nullptr;
  int32_t* sum16 = nullptr;
};

}  // namespace hearth
