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

uint64_t ImageHeadBytes(const PassImage& image, uint32_t rows, uint32_t hidden) {
  const auto before = reinterpret_cast<const std::byte*>(image.embed) -
                      reinterpret_cast<const std::byte*>(image.segments);
  return static_cast<uint64_t>(before) + uint64_t{rows} * hidden * sizeof(float);
}

}  // namespace hearth
