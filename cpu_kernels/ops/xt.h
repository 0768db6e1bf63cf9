// Activations for weights in XT: rotated (pack/format/xt_layout.h), then as int8 with one scale for
// a whole row. Canonical arithmetic of a product with XT weights, whose dots are exact:
//   x' = the rotated row; s = max|x'| / 127; q = round-half-to-even(x' / s), at most 127 in
//   magnitude; s == 0 gives q = 0; a NaN or infinity in x' gives such an s
//   acc = the int32 sum of (level + 64) * q over the whole row, sum = the int32 sum of q
//   y = (float(acc - 64 * sum) * s) * (row scale * multiplier of the projection)
// in fp32; the row scale is a fp16 number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

// Borrowed view of rotated, quantised rows.
struct XtRows {
  const int8_t* q = nullptr;     // (rows, cols)
  const float* scale = nullptr;  // (rows)
  const int32_t* sum = nullptr;  // (rows): sum of q
  uint32_t rows = 0;
  uint32_t cols = 0;  // a multiple of 32
  XtRows Slice(uint32_t first, uint32_t count) const {
    return {q + size_t{first} * cols, scale + first, sum + first, count, cols};
  }
};

struct RotateQuantizeArgs {
  const float* x = nullptr;  // (rows, cols), row stride x_stride
  uint32_t x_stride = 0;     // elements, >= cols
  uint32_t rows = 0;
  uint32_t cols = 0;         // a multiple of 32
  float* scratch = nullptr;  // cols values of room
  int8_t* q = nullptr;       // as XtRows, written whole
  float* scale = nullptr;
  int32_t* sum = nullptr;
};

}  // namespace hearth
