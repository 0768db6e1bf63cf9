// One sequence on a card: its numbers, its memory, and where things lie in it.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/stream.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/cuda/sequence_rows.h"
#include "runtime/backend/cuda/sequence_state.h"

namespace hearth {

class CudaSequence final : public Sequence {
 public:
  // `state` lies in `memory`.
  CudaSequence(const SequenceShape& shape, DeviceBuffer memory, SequenceState state)
      : shape_(shape),
        memory_(std::move(memory)),
        state_(std::move(state)),
        rows_(shape.context_tokens_max) {}

  uint32_t token_count() const override { return rows_.token_count(); }
  uint32_t draft_count() const override { return rows_.draft_count(); }
  uint32_t context_tokens_max() const override { return shape_.context_tokens_max; }

  SequenceRows& rows() { return rows_; }
  const SequenceRows& rows() const { return rows_; }
  const SequenceState& state() const { return state_; }
  const SequenceShape& shape() const { return shape_; }

 private:
  SequenceShape shape_;
  DeviceBuffer memory_;
  SequenceState state_;
  SequenceRows rows_;
};

// Rows of D values in device memory, one behind the other.
struct DenseRows {
  float* data = nullptr;
  uint64_t width = 0;
};
// Enqueues copies between a sequence's ring of hidden states and dense rows: those of positions
// [position, position + rows).
absl::Status StoreHidden(const CudaSequence& sequence, uint32_t position, uint32_t rows,
                         const DenseRows& from, CudaStreamView stream);
absl::Status LoadHidden(const CudaSequence& sequence, uint32_t position, uint32_t rows,
                        const DenseRows& to, CudaStreamView stream);

}  // namespace hearth
