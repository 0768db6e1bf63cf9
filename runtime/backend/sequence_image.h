// Images of a sequence's state in ordinary memory, from which another sequence goes on as if it had
// read the same tokens. An image is of a sequence that has read `n` tokens in prompt passes and has
// two parts:
//
//   fixed  what does not grow with the tokens: delta-rule states, convolution windows, n-gram
//          history, indexer keys of the block that is not complete, the last hidden state
//   span   what does: keys, values and block keys of a range of positions. The spans of one
//          conversation follow each other, so that all its images together hold every position once
//
// The MTP layer pairs position p with the token at p + 1: an image of n tokens has at most n - 1
// rows of it, so that what an image holds follows from its own tokens alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "pack/format/geometry.h"
#include "runtime/base/ids.h"

namespace hearth {

class Sequence;

// Positions that a span covers, [begin, end).
struct SpanRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t draft_begin = 0;  // of the MTP layer
  uint32_t draft_end = 0;
};

// Part of an image that exists, in the backend's own layout.
struct SpanView {
  SpanRange range;
  std::span<const std::byte> bytes;  // span_bytes(range)
};

struct ImageView {
  std::span<const TokenId> tokens;   // that were read
  uint32_t draft_count = 0;          // rows of the MTP layer, 0 or tokens - 1
  std::span<const std::byte> fixed;  // fixed_bytes()
  std::span<const SpanView> spans;   // from position 0 to the last, without gap or overlap
};

// Who makes images: a backend, for its own sequences. As thread-compatible as passes are; not
// within a pass. An image fits every sequence of backends that are made alike, over the same
// weights.
class SequenceImager {
 public:
  virtual ~SequenceImager() = default;

  virtual uint64_t fixed_bytes() const = 0;
  virtual uint64_t span_bytes(const SpanRange& range) const = 0;

  // How many rows of the MTP layer an image of the sequence as it is would have: all that its
  // tokens determine, or 0 when rows are missing.
  virtual uint32_t ImageDraftCount(const Sequence& sequence) const = 0;

  // Copies the state of a sequence as it is, the fixed part and the span of `range`; either may be
  // empty and is left out then. FailedPrecondition while a pass is open, after a pass that failed,
  // and once a window was committed: what windows leave is not what prompts leave, to the last bit.
  // InvalidArgument for a range that the sequence does not hold or memory of the wrong length.
  virtual absl::Status SaveImage(const Sequence& sequence, const SpanRange& range,
                                 std::span<std::byte> fixed, std::span<std::byte> span) = 0;

  // Makes a sequence that has read nothing what the image's was. Rows of the MTP layer come along
  // up to image.draft_count; spans may hold more. FailedPrecondition for a sequence that is in use,
  // ResourceExhausted when its context is too short, InvalidArgument for spans or bytes that do not
  // fit; the sequence is as before then. Any other error leaves it lost.
  virtual absl::Status RestoreImage(const ImageView& image, Sequence& sequence) = 0;
};

// What both backends' images take. `position_bytes`: keys and values of a position in one layer, in
// the backend's own format.
uint64_t ImageFixedBytes(const ModelGeometry& geometry);
uint64_t ImageSpanBytes(const ModelGeometry& geometry, uint64_t position_bytes,
                        const SpanRange& range);

// How much of an image's fixed part stands at which position.
struct ImageCounts {
  uint32_t tokens = 0;
  uint32_t drafts = 0;
};

// Of a sequence in numbers: what both backends ask before they save or restore.
struct ImageSource {
  uint32_t token_count = 0;
  uint32_t draft_count = 0;
  uint32_t context_tokens_max = 0;
  bool pass_open = false;
  bool lost = false;         // a pass failed half way
  bool has_windows = false;  // rows of a window were committed
};

// All rows of the MTP layer that the sequence's tokens determine, or 0 when some are missing.
uint32_t ImageDraftCountOf(const ImageSource& source);

// Lengths of memory against what `imager` says, ranges against each other and the sequence; the
// errors of SaveImage and RestoreImage.
absl::Status CheckSave(const SequenceImager& imager, const ImageSource& source,
                       const SpanRange& range, uint64_t fixed_bytes, uint64_t span_bytes);
absl::Status CheckRestore(const SequenceImager& imager, const ImageSource& source,
                          const ImageView& image);

}  // namespace hearth
