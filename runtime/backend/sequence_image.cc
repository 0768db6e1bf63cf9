#include "runtime/backend/sequence_image.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status CheckLength(std::string_view what, uint64_t bytes, uint64_t needed) {
  if (bytes == needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("image of a sequence: ", ToAbsl(what), " of ",
                                                 bytes, " bytes, expected ", needed));
}

absl::Status CheckRange(const SpanRange& range) {
  if (range.begin <= range.end && range.draft_begin <= range.draft_end &&
      range.draft_end <= range.end) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("image of a sequence: a span of positions ",
                                                 range.begin, " to ", range.end, " and drafts ",
                                                 range.draft_begin, " to ", range.draft_end));
}

}  // namespace

uint32_t ImageDraftCountOf(const ImageSource& source) {
  if (source.token_count == 0 || source.draft_count + 1 < source.token_count) return 0;
  return source.token_count - 1;
}

absl::Status CheckSave(const SequenceImager& imager, const ImageSource& source,
                       const SpanRange& range, uint64_t fixed_bytes, uint64_t span_bytes) {
  if (source.pass_open || source.lost || source.has_windows || source.token_count == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no image of a sequence ",
        source.pass_open     ? "within a pass"
        : source.lost        ? "whose state is lost"
        : source.has_windows ? "that has decoded: what windows leave differs in the last bits"
                             : "that has read nothing"));
  }
  HEARTH_RETURN_IF_ERROR(CheckRange(range));
  const bool has_drafts = range.draft_begin < range.draft_end;
  if (range.end > source.token_count || (has_drafts && range.draft_end > source.draft_count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image of a sequence of ", source.token_count, " tokens and ", source.draft_count,
        " drafts: a span up to ", range.end, " and ", range.draft_end));
  }
  if (fixed_bytes != 0) {
    HEARTH_RETURN_IF_ERROR(CheckLength("a fixed part", fixed_bytes, imager.fixed_bytes()));
  }
  if (span_bytes == 0) return absl::OkStatus();
  return CheckLength("a span", span_bytes, imager.span_bytes(range));
}

absl::Status CheckRestore(const SequenceImager& imager, const ImageSource& source,
                          const ImageView& image) {
  if (source.pass_open || source.lost || source.has_windows || source.token_count != 0 ||
      source.draft_count != 0) {
    return absl::FailedPreconditionError("an image is restored into a sequence that is not fresh");
  }
  const size_t tokens = image.tokens.size();
  if (tokens > source.context_tokens_max) {
    return absl::ResourceExhaustedError(absl::StrCat("context of ", source.context_tokens_max,
                                                     " tokens: an image of ", tokens,
                                                     " does not fit"));
  }
  if (tokens == 0 || (image.draft_count != 0 && image.draft_count != tokens - 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("image of a sequence of ", tokens, " tokens and ", image.draft_count,
                     " drafts: expected none, or one less than tokens"));
  }
  HEARTH_RETURN_IF_ERROR(CheckLength("a fixed part", image.fixed.size(), imager.fixed_bytes()));
  uint32_t end = 0;
  uint32_t draft_end = 0;
  for (const SpanView& span : image.spans) {
    HEARTH_RETURN_IF_ERROR(CheckRange(span.range));
    if (span.range.begin != end || span.range.draft_begin != draft_end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image of a sequence: a span begins at ", span.range.begin, " and draft ",
          span.range.draft_begin, ", the one before ended at ", end, " and ", draft_end));
    }
    HEARTH_RETURN_IF_ERROR(CheckLength("a span", span.bytes.size(), imager.span_bytes(span.range)));
    end = span.range.end;
    draft_end = span.range.draft_end;
  }
  if (end == tokens && (image.draft_count == 0 || draft_end == image.draft_count)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("image of a sequence of ", tokens, " tokens and ",
                                                 image.draft_count, " drafts: its spans end at ",
                                                 end, " and ", draft_end));
}

}  // namespace hearth
