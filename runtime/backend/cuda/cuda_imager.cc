#include "runtime/backend/cuda/cuda_imager.h"

#include <algorithm>
#include <cstring>

#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/backend/cuda/device_copy.h"
#include "runtime/backend/cuda/event_wait.h"
#include "runtime/backend/cuda/host_lookups.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

bool IsGdn(const ModelGeometry& g, uint32_t layer) {
  return layer < g.layer_count() && g.layers[layer] == MixerKind::kGdn;
}

// Rows that a ring is asked for before the next position.
struct RingRowsBack {
  uint64_t conv, raw_keys, ngram;
  explicit RingRowsBack(const ModelGeometry& g)
      : conv(g.gdn.conv_taps - 1),
        raw_keys(g.attention.block_tokens - 1),
        ngram(g.ngram.row_count == 0 ? 0 : uint64_t{g.ngram.conv_taps - 1} * g.ngram.ngram_size) {}
};

// Bytes of the keys, as of the values, of a position in one layer.
struct QsaRowBytes {
  uint64_t kv, scale;
  QsaRowBytes(const AttentionGeometry& a, KvFormat format)
      : kv(uint64_t{a.kv_head_count} * a.head_dim * (format == KvFormat::kInt8 ? 1 : 2)),
        scale(format == KvFormat::kInt8 ? a.kv_head_count * sizeof(float) : 0) {}
};

// Places on the card, of which every one is visited in the same order whoever asks.
class PlaceVisitor {
 public:
  virtual ~PlaceVisitor() = default;
  // Null: positions before the first, which are zeros.
  virtual absl::Status Visit(std::byte* place, uint64_t bytes) = 0;

  absl::Status VisitFloats(float* place, uint64_t count) {
    return Visit(reinterpret_cast<std::byte*>(place), count * sizeof(float));
  }
  // Rows [end - back, end) of a ring.
  absl::Status VisitRing(float* ring, uint64_t row_floats, uint64_t ring_rows, uint64_t back,
                         uint64_t end) {
    const uint64_t held = std::min(back, end);
    if (held < back) HEARTH_RETURN_IF_ERROR(VisitFloats(nullptr, (back - held) * row_floats));
    for (const RingPiece& piece : RingPieces(end - held, held, ring_rows)) {
      HEARTH_RETURN_IF_ERROR(
          VisitFloats(ring + piece.ring_row * row_floats, piece.rows * row_floats));
    }
    return absl::OkStatus();
  }
};

class CopierOut final : public PlaceVisitor {
 public:
  CopierOut(std::span<std::byte> to, CudaStreamView stream) : left_(to), stream_(stream) {}
  absl::Status Visit(std::byte* place, uint64_t bytes) override {
    HEARTH_CHECK(bytes <= left_.size());
    std::byte* const to = left_.data();
    left_ = left_.subspan(bytes);
    if (bytes == 0) return absl::OkStatus();
    if (place != nullptr) return CopyAsync(to, place, bytes, stream_);
    std::memset(to, 0, bytes);
    return absl::OkStatus();
  }
  bool done() const { return left_.empty(); }

 private:
  std::span<std::byte> left_;
  CudaStreamView stream_;
};

class CopierIn final : public PlaceVisitor {
 public:
  CopierIn(std::span<const std::byte> from, CudaStreamView stream) : left_(from), stream_(stream) {}
  absl::Status Visit(std::byte* place, uint64_t bytes) override {
    HEARTH_CHECK(bytes <= left_.size());
    const std::byte* const from = left_.data();
    left_ = left_.subspan(bytes);
    if (bytes == 0 || place == nullptr) return absl::OkStatus();
    return CopyAsync(place, from, bytes, stream_);
  }
  bool done() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
  CudaStreamView stream_;
};

absl::Status VisitFixed(const ModelGeometry& g, const CudaSequence& s, const ImageCounts& counts,
                        PlaceVisitor& visitor) {
  const RingRowsBack back(g);
  const uint32_t ring_rows = s.shape().ring_rows;
  const uint64_t d = g.stream_dim();
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    const GpuLayerState& state = s.state().layers[layer];
    if (IsGdn(g, layer)) {
      HEARTH_RETURN_IF_ERROR(visitor.VisitFloats(
          state.delta_state,
          uint64_t{g.gdn.value_head_count} * g.gdn.key_head_dim * g.gdn.value_head_dim));
      HEARTH_RETURN_IF_ERROR(visitor.VisitRing(state.conv_ring, g.gdn.conv_channels(), ring_rows,
                                               back.conv, counts.tokens));
      continue;
    }
    const uint32_t end = layer < g.layer_count() ? counts.tokens : counts.drafts;
    HEARTH_RETURN_IF_ERROR(visitor.VisitRing(state.raw_keys, g.attention.indexer_head_dim,
                                             ring_rows, back.raw_keys, end));
  }
  if (back.ngram != 0) {
    HEARTH_RETURN_IF_ERROR(
        visitor.VisitRing(s.state().ngram_ring, d, ring_rows, back.ngram, counts.tokens));
  }
  const uint64_t hidden_row = (counts.tokens - 1) % HiddenRows(s.shape());
  return visitor.VisitFloats(s.state().hidden + hidden_row * d, d);
}

absl::Status VisitSpan(const ModelGeometry& g, const CudaSequence& s, const SpanRange& range,
                       PlaceVisitor& visitor) {
  const AttentionGeometry& a = g.attention;
  const QsaRowBytes row(a, s.shape().kv_format);
  for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
    if (IsGdn(g, layer)) continue;
    const GpuLayerState& state = s.state().layers[layer];
    const bool draft = layer == g.layer_count();
    const uint64_t begin = draft ? range.draft_begin : range.begin;
    const uint64_t count = (draft ? range.draft_end : range.end) - begin;
    HEARTH_RETURN_IF_ERROR(visitor.Visit(state.k + begin * row.kv, count * row.kv));
    HEARTH_RETURN_IF_ERROR(visitor.Visit(state.v + begin * row.kv, count * row.kv));
    if (row.scale != 0) {
      const uint64_t heads = a.kv_head_count;
      HEARTH_RETURN_IF_ERROR(visitor.VisitFloats(state.k_scale + begin * heads, count * heads));
      HEARTH_RETURN_IF_ERROR(visitor.VisitFloats(state.v_scale + begin * heads, count * heads));
    }
    const uint64_t block_begin = begin / a.block_tokens;
    const uint64_t blocks = (begin + count) / a.block_tokens - block_begin;
    HEARTH_RETURN_IF_ERROR(visitor.VisitFloats(state.block_keys + block_begin * a.indexer_head_dim,
                                               blocks * a.indexer_head_dim));
  }
  return absl::OkStatus();
}

ImageSource SourceOf(const CudaSequence& s) {
  return {.token_count = s.token_count(),
          .draft_count = s.draft_count(),
          .context_tokens_max = s.context_tokens_max(),
          .pass_open = s.rows().pass_open(),
          .lost = s.rows().lost(),
          .has_windows = s.rows().has_windows()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaImager>> CudaImager::Create(const CudaImagerDeps& deps) {
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent done,
                          UniqueEvent::Create(deps.stream.gpu(), EventKind::kUntimed));
  return std::unique_ptr<CudaImager>(new CudaImager(deps, std::move(done)));
}

uint64_t CudaImager::fixed_bytes() const { return ImageFixedBytes(deps_.geometry); }

uint64_t CudaImager::span_bytes(const SpanRange& range) const {
  return ImageSpanBytes(deps_.geometry,
                        CudaPositionBytes(deps_.geometry.attention, deps_.kv_format), range);
}

uint32_t CudaImager::ImageDraftCount(const Sequence& sequence) const {
  return ImageDraftCountOf(SourceOf(static_cast<const CudaSequence&>(sequence)));
}

absl::Status CudaImager::SaveImage(const Sequence& sequence, const SpanRange& range,
                                   std::span<std::byte> fixed, std::span<std::byte> span) {
  const auto& s = static_cast<const CudaSequence&>(sequence);
  const ImageSource source = SourceOf(s);
  HEARTH_RETURN_IF_ERROR(CheckSave(*this, source, range, fixed.size(), span.size()));
  const ImageCounts counts{.tokens = s.token_count(), .drafts = ImageDraftCountOf(source)};
  const absl::Status copied = CopyOut(s, counts, range, fixed, span);
  // Whatever was enqueued has ended before the caller may let the memory go.
  const absl::Status ended = Await();
  return copied.ok() ? ended : copied;
}

absl::Status CudaImager::CopyOut(const CudaSequence& sequence, const ImageCounts& counts,
                                 const SpanRange& range, std::span<std::byte> fixed,
                                 std::span<std::byte> span) {
  if (!fixed.empty()) {
    CopierOut out(fixed, deps_.stream);
    HEARTH_RETURN_IF_ERROR(VisitFixed(deps_.geometry, sequence, counts, out));
    HEARTH_CHECK(out.done());
  }
  if (span.empty()) return absl::OkStatus();
  CopierOut out(span, deps_.stream);
  HEARTH_RETURN_IF_ERROR(VisitSpan(deps_.geometry, sequence, range, out));
  HEARTH_CHECK(out.done());
  return absl::OkStatus();
}

absl::Status CudaImager::RestoreImage(const ImageView& image, Sequence& sequence) {
  auto& s = static_cast<CudaSequence&>(sequence);
  HEARTH_RETURN_IF_ERROR(CheckRestore(*this, SourceOf(s), image));
  s.rows().Restore(image.tokens, image.draft_count);
  const absl::Status copied = CopyIn(image, s);
  const absl::Status ended = Await();
  if (copied.ok() && ended.ok()) return absl::OkStatus();
  s.rows().Lose();
  return copied.ok() ? ended : copied;
}

absl::Status CudaImager::CopyIn(const ImageView& image, const CudaSequence& sequence) {
  CopierIn fixed(image.fixed, deps_.stream);
  const ImageCounts counts{.tokens = static_cast<uint32_t>(image.tokens.size()),
                           .drafts = image.draft_count};
  HEARTH_RETURN_IF_ERROR(VisitFixed(deps_.geometry, sequence, counts, fixed));
  HEARTH_CHECK(fixed.done());
  for (const SpanView& span : image.spans) {
    CopierIn part(span.bytes, deps_.stream);
    HEARTH_RETURN_IF_ERROR(VisitSpan(deps_.geometry, sequence, span.range, part));
    HEARTH_CHECK(part.done());
  }
  return absl::OkStatus();
}

absl::Status CudaImager::Await() {
  HEARTH_RETURN_IF_ERROR(done_.Record(deps_.stream));
  return AwaitEvent(done_, deps_.clock, deps_.wait_ns_max, "image of a sequence");
}

}  // namespace hearth
