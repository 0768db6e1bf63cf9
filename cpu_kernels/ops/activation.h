// fp32 activations as int8, in blocks of 32 values (canonical arithmetic: pack/FORMAT.md).
//   s = max|x| / 127 over the block, with the low four bits of its mantissa cleared; below 2^-100
//   it is 0; q = round-half-to-even(x / s), at most 127 in magnitude; s == 0 gives q = 0. A NaN or
//   infinity in the block gives such an s, and so marks every output that depends on it.
// Twenty bits of s times the four of an E4M3 weight scale are an exact fp32 number: whether the
// weight scale is multiplied into s or into the dot product makes no difference, so that tensor
// cores, which scale the weights, give the bits of those who scale the dot.
// A last block may be shorter; its missing values count as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth {

inline constexpr uint32_t kActivationBlockValues = 32;

inline constexpr uint32_t kScaleMantissaMask = 0xFFFFFFF0u;  // of a scale's bits
inline constexpr float kScaleMin = 0x1p-100f;                // a smaller scale counts as zero

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
