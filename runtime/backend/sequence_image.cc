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

bool IsGdn(const ModelGeometry& g, uint32_t layer) {
  return layer < g.layer_count() && g.layers[layer] == MixerKind::kGdn;
}

}  // namespace

uint64_t ImageFixedBytes(const ModelGeometry& g) {
  uint64_t floats = g.stream_dim();  // the last hidden state
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    floats += IsGdn(g, layer)
                  ? uint64_t{g.gdn.value_head_count} * g.gdn.key_head_dim * g.gdn.value_head_dim +
                        uint64_t{g.gdn.conv_taps - 1} * g.gdn.conv_channels()
                  : uint64_t{g.attention.block_tokens - 1} * g.attention.indexer_head_dim;
  }
  if (g.ngram.row_count != 0) {
    floats += uint64_t{g.ngram.conv_taps - 1} * g.ngram.ngram_size * g.stream_dim();
  }
  return floats * sizeof(float);
}

uint64_t ImageSpanBytes(const ModelGeometry& g, uint64_t position_bytes, const SpanRange& range) {
  const uint64_t block_tokens = g.attention.block_tokens;
  const auto layer_bytes = [&](uint64_t begin, uint64_t end) {
    return (end - begin) * position_bytes + (end / block_tokens - begin / block_tokens) *
                                                g.attention.indexer_head_dim * sizeof(float);
  };
  uint64_t bytes = g.has_mtp ? layer_bytes(range.draft_begin, range.draft_end) : 0;
  for (uint32_t layer = 0; layer < g.layer_count(); ++layer) {
    if (!IsGdn(g, layer)) bytes += layer_bytes(range.begin, range.end);
  }
  return bytes;
}

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
