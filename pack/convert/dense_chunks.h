// How the dense tensors of a checkpoint become those of a pack: which format each gets, and its
// rows in pieces that are read and encoded on their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/convert/checkpoint.h"
#include "pack/format/directory.h"

namespace hearth {

struct DenseRange {
  uint32_t tensor = 0;  // index into DensePlan::tensors
  uint64_t row_begin = 0;
  uint64_t row_count = 0;  // of the source
};

struct DensePlan {
  std::vector<TensorInfo> tensors;  // name, format, rows and cols as stored
  std::vector<DenseInfo> sources;   // one for each of them
  std::vector<DenseRange> ranges;   // in file order
  uint64_t chunk_bytes_max = 0;     // of values and encoded bytes together
};

struct DenseChunk {
  std::vector<float> values;  // (row_count, cols) as in the source
  std::vector<float> transposed;
  std::vector<std::byte> bytes;  // as stored
  uint64_t inexact_values = 0;   // that BF16 had to round
};

// Whether a tensor is a convolution kernel, which is stored transposed: (taps, channels) in fp32.
bool IsConvolution(const DenseInfo& info);

// Formats: convolutions and vectors fp32, Q8TakesTensor() ones Q8 when `q8`, fp32 sources fp32, the
// rest BF16.
absl::StatusOr<DensePlan> PlanDense(std::span<const DenseInfo> infos, bool q8);

// Thread-safe. Errors name the tensor.
absl::Status EncodeDenseChunk(const Checkpoint& checkpoint, const DensePlan& plan,
                              const DenseRange& range, DenseChunk& chunk);

}  // namespace hearth
