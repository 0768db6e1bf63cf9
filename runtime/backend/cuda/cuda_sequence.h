// One sequence on a card: its numbers, its memory, and where things lie in it.
#pragma once

#include <cstdint>
#include <utility>

#include "gpu_kernels/device/device_buffer.h"
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
  const SequenceState& state() const { return state_; }
  const SequenceShape& shape() const { return shape_; }

 private:
  SequenceShape shape_;
  DeviceBuffer memory_;
  SequenceState state_;
  SequenceRows rows_;
};

}  // namespace hearth
