#include "runtime/backend/cuda/pass_table_image.h"

#include "runtime/base/check.h"

namespace hearth {

uint32_t WritePassTable(std::span<const GpuSegment> segments, const PassImage& image) {
  HEARTH_CHECK(segments.size() <= kPassSegmentsMax);
  uint32_t row = 0;
  for (uint32_t s = 0; s < segments.size(); ++s) {
    GpuSegment& to = image.segments[s];
    to = segments[s];
    to.row_begin = row;
    for (uint32_t i = 0; i < to.rows; ++i) image.row_segment[row + i] = s;
    row += to.rows;
  }
  *image.segment_count = static_cast<uint32_t>(segments.size());
  return row;
}

ImageExtent ImageExtentOf(const PassImage& image, uint32_t rows, uint32_t hidden,
                          uint32_t embed_dim) {
  const auto* base = reinterpret_cast<const std::byte*>(image.segments);
  const auto offset = [base](const float* p) {
    return static_cast<uint64_t>(reinterpret_cast<const std::byte*>(p) - base);
  };
  ImageExtent extent{.head_bytes = offset(image.embed) + uint64_t{rows} * hidden * sizeof(float)};
  if (image.ngram_embed != nullptr) {
    extent.ngram_offset_bytes = offset(image.ngram_embed);
    extent.ngram_bytes = uint64_t{rows} * embed_dim * sizeof(float);
  }
  return extent;
}

}  // namespace hearth
