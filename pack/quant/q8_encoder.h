// fp32 rows to the interleaved Q8 layout of pack/format/matrix_layout.h, and back.
//   scale = fp16(max|x| / 127) over each block of 32; q = round-half-to-even(x / scale), clamped to
//   [-127, 127]; a zero scale gives q = 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace hearth {

// Encodes `row_count` rows (values: (row_count, cols), cols % 32 == 0) that begin on a band
// boundary into whole bands: out holds BandCount(row_count) * Q8BandBytes(cols) bytes; rows past
// the last are zero. DataLoss names row (from the first of `values`) and column of a value that is
// not finite or has a scale beyond fp16.
absl::Status EncodeQ8Rows(std::span<const float> values, uint32_t row_count, uint32_t cols,
                          std::span<std::byte> out);

// The inverse, exact: value = (code - 128) * scale.
void DecodeQ8Rows(std::span<const std::byte> bands, uint32_t row_count, uint32_t cols,
                  std::span<float> values);

}  // namespace hearth
