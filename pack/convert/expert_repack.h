// One expert between its source encoding and its blob (pack/format/expert_layout.h), both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "pack/convert/checkpoint.h"
#include "pack/format/expert_layout.h"
#include "pack/quant/nvfp4_quantizer.h"
#include "pack/quant/xt_encoder.h"
#include "pack/quant/xt_feedback.h"

namespace hearth {

struct RepackStats {
  uint64_t values = 0;
  uint64_t inexact_values = 0;  // that BF16 had to round
  QuantizationError error;      // of quantisation to NVFP4 or XT, zero otherwise
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

// Checks the matrices of a source in any format but kXt as PackExpert does, and leaves their values
// decoded to fp32.
absl::Status DecodeSourceExpert(const ExpertLayout& shape, SourceExpert& source);

// Whether EncodeXtExperts offers it: all but XT itself, whose error would be encoded again.
bool CanEncodeXt(ExpertFormat from);
// One expert to encode, and its place.
struct XtExpertJob {
  SourceExpert* source = nullptr;
  const XtFeedback* gate_up = nullptr;  // may be null
  const XtFeedback* down = nullptr;     // may be null
  std::span<std::byte> blob;
  RepackStats* stats = nullptr;  // added to
};
// As PackExpert, for a kXt layout and experts in any number: decodes the sources and encodes them,
// on the threads of the calling oneTBB arena and the encoder's device.
absl::Status EncodeXtExperts(const XtEncoder& encoder, const ExpertLayout& layout,
                             std::span<const XtExpertJob> experts);

// The values of a blob of any format as fp32, multipliers and scales included, into gate, up and
// down values; `out.format` becomes kF32.
void DecodeExpertValues(const ExpertLayout& layout, std::span<const std::byte> blob,
                        SourceExpert& out);

// The inverse of a repacking in one format; not kXt.
void UnpackExpert(const ExpertLayout& layout, std::span<const std::byte> blob, SourceExpert& out);

}  // namespace hearth
