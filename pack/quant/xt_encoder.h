// A matrix of fp32 weights to XT (layout and rotation: pack/format/xt_layout.h), on all cores.
//
// Each row is rotated and brought to level units by a scale of its own: its root mean square over
// the deviation that suits the code, times a factor common to the matrix that sample streams
// choose. Streams are then encoded block by block, from the last to the first when errors are fed
// back. Rows do not depend on each other, so the work is split by (matrix, group, row of a band)
// and the result does not depend on how many threads there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"

#include "pack/format/expert_layout.h"
#include "pack/quant/nvfp4_quantizer.h"
#include "pack/quant/xt_device.h"
#include "pack/quant/xt_feedback.h"
#include "pack/quant/xt_trellis.h"

namespace hearth {

struct XtEncodeStats {
  uint64_t weights = 0;
  QuantizationError error;  // of the weights, whatever the inputs
  void Add(const XtEncodeStats& other);
};

// One matrix to encode.
struct XtMatrixJob {
  XtShape shape;
  std::span<const float> values;         // (rows, cols), not rotated
  const XtFeedback* feedback = nullptr;  // for these cols; null: none
  std::span<std::byte> matrix;           // shape.bytes(), written whole
  // Results.
  float multiplier = 1;
  XtEncodeStats stats;
};

class XtEncoder {
 public:
  // `device`, if any, outlives the encoder and encodes the matrices that it takes.
  explicit XtEncoder(XtIsa isa = BestXtIsa(), XtMatrixDevice* device = nullptr);
  ~XtEncoder();
  XtEncoder(const XtEncoder&) = delete;
  XtEncoder& operator=(const XtEncoder&) = delete;

  // All jobs at once, on the threads of the calling oneTBB arena. May be called from several of its
  // tasks. DataLoss names row and column of a value that is not finite.
  absl::Status Encode(std::span<XtMatrixJob> jobs) const;

 private:
  struct Threads;  // what each thread keeps between streams
  std::unique_ptr<Threads> threads_;
  XtMatrixDevice* const device_;
};

// Bytes [line][lane] of one lane of the chunks of a stream: symbols of 8 * bands steps.
// `first` is the lane's byte in the first line of the first chunk of the stream.
void StoreXtStream(uint32_t bits, std::span<const uint8_t> symbols, std::byte* first);

// The matrix as fp32 weights that are not rotated: (rows, cols).
void DecodeXtMatrix(const XtShape& shape, std::span<const std::byte> matrix, float multiplier,
                    std::span<float> values);

}  // namespace hearth
