// Rows of a prompt that the host's experts read: they stay on the card until somebody asks, which
// most layers of a prompt see nobody do.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "gpu_kernels/ops/mixer/quantized_out.h"
#include "runtime/base/clock.h"

namespace hearth {

// (rows, cols) in both forms, on the card or in pinned memory.
struct RowsInBothForms {
  float* x = nullptr;
  QuantizedOut quantized;
};

class PromptRows final : public RowsArrival {
 public:
  // `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<PromptRows>> Create(GpuId gpu, Clock& clock,
                                                            int64_t wait_ns_max);
  // Of the layer at hand. The card has written `from`, which stays as it is until the next layer.
  void Offer(const RowsInBothForms& from, const RowsInBothForms& to, uint32_t rows, uint32_t cols);
  // Copies them beside what the card computes. Once for each Offer().
  absl::Status AwaitRows() override;

 private:
  PromptRows(UniqueStream stream, UniqueEvent done, Clock& clock, int64_t wait_ns_max)
      : stream_(std::move(stream)),
        done_(std::move(done)),
        clock_(clock),
        wait_ns_max_(wait_ns_max) {}

  UniqueStream stream_;
  UniqueEvent done_;
  Clock& clock_;
  const int64_t wait_ns_max_;
  RowsInBothForms from_;
  RowsInBothForms to_;
  uint32_t rows_ = 0;  // 0: nothing is left to be brought
  uint32_t cols_ = 0;
};

}  // namespace hearth
