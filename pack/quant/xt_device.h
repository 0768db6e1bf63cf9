// Where XT matrices that are rotated and scaled already can be encoded instead of on the CPU: a
// GPU, behind one call. The bytes are those of pack/quant/xt_encoder.h.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

#include "pack/format/xt_layout.h"

namespace hearth {

class XtMatrixDevice {
 public:
  struct Job {
    std::span<const float> targets;   // (rows, cols) in level units
    std::span<const float> feedback;  // XtFeedback::All() of these cols; empty: none
    std::span<std::byte> codes;       // shape.code_bytes(), written whole
    std::span<float> row_errors;      // (rows): squared errors in level units
  };

  virtual ~XtMatrixDevice() = default;
  // Whether it encodes matrices of that shape; the others stay on the CPU.
  virtual bool Takes(const XtShape& shape) const = 0;
  // Returns when the jobs, all of one shape, are done. Thread-safe.
  virtual absl::Status Encode(const XtShape& shape, std::span<const Job> jobs) = 0;
};

}  // namespace hearth
