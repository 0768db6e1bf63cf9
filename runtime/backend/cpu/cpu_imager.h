// Images of sequences of the CPU backend: their arrays one behind the other, by layer.
#pragma once

#include "pack/format/geometry.h"
#include "runtime/backend/cpu/cpu_sequence.h"
#include "runtime/backend/sequence_image.h"

namespace hearth {

class CpuImager final : public SequenceImager {
 public:
  explicit CpuImager(const ModelGeometry& geometry) : geometry_(geometry) {}  // outlives this

  // Keys and values of a position in one layer.
  static uint64_t PositionBytes(const AttentionGeometry& attention);

  uint64_t fixed_bytes() const override;
  uint64_t span_bytes(const SpanRange& range) const override;
  uint32_t ImageDraftCount(const Sequence& sequence) const override;
  absl::Status SaveImage(const Sequence& sequence, const SpanRange& range,
                         std::span<std::byte> fixed, std::span<std::byte> span) override;
  absl::Status RestoreImage(const ImageView& image, Sequence& sequence) override;

 private:
  const ModelGeometry& geometry_;
};

}  // namespace hearth
