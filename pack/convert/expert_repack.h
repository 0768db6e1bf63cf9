// One expert between its source encoding and its blob (pack/format/expert_layout.h), both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "pack/convert/checkpoint.h"
#include "pack/format/expert_layout.h"
#include "pack/quant/nvfp4_quantizer.h"

namespace hearth {

struct RepackStats {
  uint64_t values = 0;
  uint64_t inexact_values = 0;  // that BF16 had to round
  QuantizationError error;      // of NVFP4 quantisation, zero otherwise
  void Add(const RepackStats& other);
};

// Whether PackExpert offers it: the same format (bits are only moved), anything to NVFP4, NVFP4 to
// BF16.
bool CanRepack(ExpertFormat from, ExpertFormat to);

// Writes the blob, blob.size() == layout.blob_bytes(), every byte of it. InvalidArgument when the
// shapes do not fit; DataLoss names projection, row and column of a code or scale that is not a
// number. May use the vectors of `source` as scratch.
absl::Status PackExpert(const ExpertLayout& layout, SourceExpert& source, std::span<std::byte> blob,
                        RepackStats& stats);

// The inverse of a repacking in one format.
void UnpackExpert(const ExpertLayout& layout, std::span<const std::byte> blob, SourceExpert& out);

}  // namespace hearth
