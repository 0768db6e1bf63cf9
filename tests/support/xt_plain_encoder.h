// The XT encoder spelled out: targets that are rotated and scaled already, one stream after the
// other, errors fed back in order. What pack/quant/xt_encoder.cc does on all cores and
// gpu_kernels/ops/xt_encode.cu on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pack/quant/xt_device.h"
#include "pack/quant/xt_encoder.h"
#include "pack/quant/xt_trellis.h"

namespace hearth {

// `feedback`: XtFeedback::All(), or empty. Writes the codes and (rows, cols) errors.
inline void EncodeXtPlainly(const XtShape& shape, std::span<const float> weights,
                            std::span<const float> feedback, std::span<std::byte> codes,
                            std::vector<float>& errors) {
  const XtTrellis trellis(XtCodeOf(shape.bits));
  XtStreamEncoder encoder(trellis, kXtGroupBandsMax * kXtStepsPerChunk, BestXtIsa());
  errors.assign(weights.size(), 0.0f);
  for (uint32_t block = shape.block_count(); block-- > 0;) {
    const uint32_t after = (block + 1) * kXtBlockCols;
    const size_t factor_at =
        size_t{block} * (shape.cols - kXtBlockCols / 2 * (block + 1)) * kXtBlockCols;
    for (uint32_t g = 0; g < shape.group_count(); ++g) {
      const uint32_t begin = shape.group_begin(g);
      const uint32_t steps = (shape.group_begin(g + 1) - begin) * kXtStepsPerChunk;
      for (uint32_t lane = 0; lane < kXtLaneCount; ++lane) {
        std::vector<float> targets(steps), levels(steps);
        std::vector<uint8_t> symbols(steps);
        const auto place = [&](uint32_t t) {  // SIZE_MAX in a padding row
          const uint32_t row = (begin + t / 8) * 16 + lane / 4;
          const uint32_t col = block * kXtBlockCols + 4 * (t % 8) + lane % 4;
          return row < shape.rows ? size_t{row} * shape.cols + col : SIZE_MAX;
        };
        for (uint32_t t = 0; t < steps; ++t) {
          if (place(t) == SIZE_MAX) continue;
          targets[t] = weights[place(t)];
          if (feedback.empty()) continue;
          const size_t row_at = place(t) / shape.cols * shape.cols;
          for (uint32_t c = after; c < shape.cols; ++c) {
            targets[t] +=
                errors[row_at + c] *
                feedback[factor_at + (c - after) * kXtBlockCols + place(t) % kXtBlockCols];
          }
        }
        (void)encoder.Encode(targets, symbols, levels);
        StoreXtStream(shape.bits, symbols,
                      codes.data() + shape.chunk_offset_bytes(block, begin) + lane);
        for (uint32_t t = 0; t < steps; ++t) {
          if (place(t) != SIZE_MAX) errors[place(t)] = weights[place(t)] - levels[t];
        }
      }
    }
  }
}

// A device made of it, for one number of rows; counts what it was given.
class PlainXtDevice final : public XtMatrixDevice {
 public:
  explicit PlainXtDevice(uint32_t rows) : rows_(rows) {}
  bool Takes(const XtShape& shape) const override { return shape.rows == rows_; }
  absl::Status Encode(const XtShape& shape, std::span<const Job> jobs) override {
    for (const Job& job : jobs) {
      std::vector<float> errors;
      EncodeXtPlainly(shape, job.targets, job.feedback, job.codes, errors);
      for (uint32_t r = 0; r < shape.rows; ++r) {
        float sum = 0;
        for (uint32_t c = 0; c < shape.cols; ++c) {
          sum += errors[size_t{r} * shape.cols + c] * errors[size_t{r} * shape.cols + c];
        }
        job.row_errors[r] = sum;
      }
    }
    calls.push_back(jobs.size());
    return absl::OkStatus();
  }

  std::vector<size_t> calls;  // matrices of each

 private:
  const uint32_t rows_;
};

}  // namespace hearth
