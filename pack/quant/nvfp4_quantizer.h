// fp32 matrices to NVFP4 in ModelOpt's convention (value = E2M1 * E4M3 block scale * multiplier),
// for models whose source has no NVFP4 experts. Lossy; the error is measured and returned.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace hearth {

struct QuantizationError {
  double squared_error = 0;   // sum over values of (value - decoded)^2
  double squared_values = 0;  // sum over values of value^2
  void Add(const QuantizationError& other) {
    squared_error += other.squared_error;
    squared_values += other.squared_values;
  }
  // The error's size relative to the values': 0.1 is 10%.
  double RelativeRms() const;
};

// values: (rows, cols), cols % 16 == 0; codes: (rows, cols / 2), even element low; scales: (rows,
// cols/16).
//   multiplier = max|x| / (6 * 448); each block takes, of the E4M3 scales near max|block| / (6 *
//   multiplier) (from two codes below to five above, which holds the scale that maps the maximum to
//   4), the one with the least squared error; the smallest wins a tie. Elements round to nearest,
//   ties to even.
// DataLoss names row and column of a value that is not finite.
absl::Status QuantizeNvfp4(std::span<const float> values, uint32_t rows, uint32_t cols,
                           std::span<uint8_t> codes, std::span<uint8_t> scales, float& multiplier,
                           QuantizationError& error);

}  // namespace hearth
