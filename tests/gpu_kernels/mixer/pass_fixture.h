// A pass table in device memory, for tests: segments with their rows, positions and pending rows.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_kernels/ops/pass_table.h"
#include "tests/gpu_kernels/mixer/device_array.h"

namespace hearth {

class DevicePass {
 public:
  // row_begin of the segments is set here.
  DevicePass(const UniqueStream& stream, std::vector<GpuSegment> segments, uint32_t window_rows_max,
             uint32_t ring_rows)
      : segments_(Placed(std::move(segments))),
        device_segments_(stream, Padded(segments_)),
        row_segment_(stream, RowSegments(segments_)),
        segment_count_(stream, std::vector<uint32_t>{static_cast<uint32_t>(segments_.size())}),
        table_{.segments = device_segments_.data(),
               .row_segment = row_segment_.data(),
               .segment_count = segment_count_.data(),
               .rows = static_cast<uint32_t>(row_segment_.count()),
               .window_rows_max = window_rows_max,
               .ring_rows = ring_rows} {}
  const GpuPassTable& table() const { return table_; }
  const std::vector<GpuSegment>& segments() const { return segments_; }
  uint32_t rows() const { return table_.rows; }

 private:
  static std::vector<GpuSegment> Placed(std::vector<GpuSegment> segments) {
    uint32_t row = 0;
    for (GpuSegment& s : segments) {
      s.row_begin = row;
      row += s.rows;
    }
    return segments;
  }
  static std::vector<GpuSegment> Padded(std::vector<GpuSegment> segments) {
    segments.resize(kPassSegmentsMax);
    return segments;
  }
  static std::vector<uint32_t> RowSegments(const std::vector<GpuSegment>& segments) {
    std::vector<uint32_t> of_row;
    for (uint32_t s = 0; s < segments.size(); ++s) of_row.insert(of_row.end(), segments[s].rows, s);
    return of_row;
  }

  std::vector<GpuSegment> segments_;
  DeviceArray<GpuSegment> device_segments_;
  DeviceArray<uint32_t> row_segment_;
  DeviceArray<uint32_t> segment_count_;
  GpuPassTable table_;
};

}  // namespace hearth
