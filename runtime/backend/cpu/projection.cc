#include "runtime/backend/cpu/projection.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {
namespace {

// Below this much work a fork-join costs more than it saves.
constexpr uint64_t kParallelValuesMin = 16384;

}  // namespace

QuantizedRows Projector::Quantize(const ActivationRows& x, const QuantizeBuffers& buffers) const {
  const size_t blocks = ActivationBlocks(x.cols);
  HEARTH_DCHECK(buffers.q.size() >= x.rows * blocks * kActivationBlockValues);
  const auto rows = [&](uint32_t begin, uint32_t end) {
    kernels_.quantize_rows.fn({.x = x.x + size_t{begin} * x.x_stride,
                               .x_stride = x.x_stride,
                               .rows = end - begin,
                               .cols = x.cols,
                               .q = buffers.q.data() + begin * blocks * kActivationBlockValues,
                               .scale = buffers.scale.data() + begin * blocks,
                               .sum16 = buffers.sum16.data() + begin * blocks * 2});
  };
  if (uint64_t{x.rows} * x.cols < kParallelValuesMin) {
    rows(0, x.rows);
  } else {
    team_.ForRanges(x.rows, 1, [&](uint32_t, uint32_t begin, uint32_t end) { rows(begin, end); });
  }
  return {.q = buffers.q.data(),
          .scale = buffers.scale.data(),
          .sum16 = buffers.sum16.data(),
          .rows = x.rows,
          .cols = x.cols};
}

void Projector::Run(const ActivationRows& x, const QuantizeBuffers& buffers,
                    std::initializer_list<Target> targets, const QuantizedRows* quantized) const {
  uint32_t units = 0;
  uint64_t values = 0;
  bool any_q8 = false;
  for (const Target& t : targets) {
    HEARTH_DCHECK(t.w->cols == x.cols);
    units += BandCount(t.w->rows);
    values += uint64_t{t.w->rows} * x.cols * x.rows;
    any_q8 = any_q8 || t.w->format == MatrixFormat::kQ8;
  }
  QuantizedRows own;
  if (any_q8 && quantized == nullptr) {
    own = Quantize(x, buffers);
    quantized = &own;
  }
  if (quantized == nullptr) quantized = &own;
  const auto share = [&](uint32_t begin, uint32_t end) {
    uint32_t first = 0;  // unit number of the target's first band
    for (const Target& t : targets) {
      const uint32_t count = BandCount(t.w->rows);
      const uint32_t b = std::clamp(begin, first, first + count) - first;
      const uint32_t e = std::clamp(end, first, first + count) - first;
      if (b < e) RunUnits(x, *quantized, t, b, e);
      first += count;
    }
  };
  if (values < kParallelValuesMin) {
    share(0, units);
  } else {
    team_.ForRanges(units, 1, [&](uint32_t, uint32_t begin, uint32_t end) { share(begin, end); });
  }
}

void Projector::RunUnits(const ActivationRows& x, const QuantizedRows& xq, const Target& target,
                         uint32_t unit_begin, uint32_t unit_end) const {
  const MatrixView& w = *target.w;
  if (w.format == MatrixFormat::kQ8) {
    kernels_.matmul_q8.fn({.w = w.data.data(),
                           .x = xq,
                           .y = target.y,
                           .y_stride = target.y_stride,
                           .out_rows = w.rows,
                           .band_begin = unit_begin,
                           .band_end = unit_end});
    return;
  }
  const MatmulRowsArgs args{.w = w.data.data(),
                            .x = x.x,
                            .x_stride = x.x_stride,
                            .rows = x.rows,
                            .cols = x.cols,
                            .y = target.y,
                            .y_stride = target.y_stride,
                            .row_begin = unit_begin * kBandRows,
                            .row_end = std::min(unit_end * kBandRows, w.rows)};
  if (w.format == MatrixFormat::kBf16) {
    kernels_.matmul_bf16.fn(args);
  } else {
    kernels_.matmul_f32.fn(args);
  }
}

}  // namespace hearth
