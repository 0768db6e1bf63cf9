#include "runtime/backend/cpu/cpu_imager.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

bool IsGdn(const ModelGeometry& g, uint32_t layer) {
  return layer < g.layer_count() && g.layers[layer] == MixerKind::kGdn;
}

// visit(values) for each array of the fixed part; visit_absent(count) for values that stand for
// positions before the first.
template <class Visit, class VisitAbsent>
void VisitFixed(const ModelGeometry& g, const CpuSequence& s, const ImageCounts& counts,
                Visit visit, VisitAbsent visit_absent) {
  const uint32_t dim = g.attention.indexer_head_dim;
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    if (IsGdn(g, layer)) {
      visit(s.gdn(layer).committed);
      visit(s.gdn(layer).conv_history);
      continue;
    }
    const QsaState& state = s.qsa(layer);
    const uint32_t end = layer < g.layer_count() ? counts.tokens : counts.drafts;
    for (uint32_t back = g.attention.block_tokens - 1; back > 0; --back) {
      if (back > end) {
        visit_absent(dim);
      } else {
        visit(state.raw_keys.subspan(size_t{(end - back) % state.raw_rows} * dim, dim));
      }
    }
  }
  visit(s.ngram().history);
}

// visit(values) for each array of a span, those of the MTP layer last.
template <class Visit>
void VisitSpan(const ModelGeometry& g, const CpuSequence& s, const SpanRange& range, Visit visit) {
  const AttentionGeometry& a = g.attention;
  const size_t kv = size_t{a.kv_head_count} * a.head_dim;
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    if (IsGdn(g, layer)) continue;
    const bool draft = layer == g.layer_count();
    const uint32_t begin = draft ? range.draft_begin : range.begin;
    const uint32_t end = draft ? range.draft_end : range.end;
    const QsaState& state = s.qsa(layer);
    visit(state.k.subspan(begin * kv, (end - begin) * kv));
    visit(state.v.subspan(begin * kv, (end - begin) * kv));
    const uint32_t block_begin = begin / a.block_tokens, block_end = end / a.block_tokens;
    visit(state.block_keys.subspan(size_t{block_begin} * a.indexer_head_dim,
                                   size_t{block_end - block_begin} * a.indexer_head_dim));
  }
}

ImageSource SourceOf(const CpuSequence& s) {
  return {.token_count = s.token_count(),
          .draft_count = s.draft_count(),
          .context_tokens_max = s.context_tokens_max(),
          .pass_open = s.pass_open(),
          .has_windows = s.has_windows()};
}

class Writer {
 public:
  explicit Writer(std::span<std::byte> to) : left_(to) {}
  void operator()(std::span<const float> values) {
    HEARTH_CHECK(values.size_bytes() <= left_.size());
    if (!values.empty()) std::memcpy(left_.data(), values.data(), values.size_bytes());
    left_ = left_.subspan(values.size_bytes());
  }
  void Zeros(size_t count) {
    HEARTH_CHECK(count * sizeof(float) <= left_.size());
    std::fill_n(left_.begin(), count * sizeof(float), std::byte{0});
    left_ = left_.subspan(count * sizeof(float));
  }
  bool done() const { return left_.empty(); }

 private:
  std::span<std::byte> left_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : left_(from) {}
  void operator()(std::span<float> values) {
    HEARTH_CHECK(values.size_bytes() <= left_.size());
    if (!values.empty()) std::memcpy(values.data(), left_.data(), values.size_bytes());
    left_ = left_.subspan(values.size_bytes());
  }
  void Skip(size_t count) { left_ = left_.subspan(count * sizeof(float)); }
  bool done() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

}  // namespace

uint64_t CpuImager::PositionBytes(const AttentionGeometry& a) {
  return uint64_t{2} * a.kv_head_count * a.head_dim * sizeof(float);
}

uint64_t CpuImager::fixed_bytes() const { return ImageFixedBytes(geometry_); }

uint64_t CpuImager::span_bytes(const SpanRange& range) const {
  return ImageSpanBytes(geometry_, PositionBytes(geometry_.attention), range);
}

uint32_t CpuImager::ImageDraftCount(const Sequence& sequence) const {
  return ImageDraftCountOf(SourceOf(static_cast<const CpuSequence&>(sequence)));
}

absl::Status CpuImager::SaveImage(const Sequence& sequence, const SpanRange& range,
                                  std::span<std::byte> fixed, std::span<std::byte> span) {
  const auto& s = static_cast<const CpuSequence&>(sequence);
  const ImageSource source = SourceOf(s);
  HEARTH_RETURN_IF_ERROR(CheckSave(*this, source, range, fixed.size(), span.size()));
  if (!fixed.empty()) {
    const std::span<const float> hidden = s.HiddenAt(s.token_count() - 1);
    HEARTH_CHECK(!hidden.empty());
    Writer writer(fixed);
    VisitFixed(
        geometry_, s, {.tokens = s.token_count(), .drafts = ImageDraftCountOf(source)},
        [&](std::span<const float> values) { writer(values); },
        [&](size_t count) { writer.Zeros(count); });
    writer(hidden);
    HEARTH_CHECK(writer.done());
  }
  if (span.empty()) return absl::OkStatus();
  Writer writer(span);
  VisitSpan(geometry_, s, range, [&](std::span<const float> values) { writer(values); });
  HEARTH_CHECK(writer.done());
  return absl::OkStatus();
}

absl::Status CpuImager::RestoreImage(const ImageView& image, Sequence& sequence) {
  auto& s = static_cast<CpuSequence&>(sequence);
  HEARTH_RETURN_IF_ERROR(CheckRestore(*this, SourceOf(s), image));
  const std::span<float> hidden = s.Restore(image.tokens, image.draft_count);
  Reader reader(image.fixed);
  VisitFixed(
      geometry_, s,
      {.tokens = static_cast<uint32_t>(image.tokens.size()), .drafts = image.draft_count},
      [&](std::span<float> values) { reader(values); }, [&](size_t count) { reader.Skip(count); });
  reader(hidden);
  HEARTH_CHECK(reader.done());
  for (const SpanView& span : image.spans) {
    Reader part(span.bytes);
    VisitSpan(geometry_, s, span.range, [&](std::span<float> values) { part(values); });
    HEARTH_CHECK(part.done());
  }
  return absl::OkStatus();
}

}  // namespace hearth
