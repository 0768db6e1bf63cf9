// Everything about a CUDA backend that follows from the model and the options alone. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/exchange/exchange_layout.h"
#include "pack/format/geometry.h"
#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/backend/cuda/pass_buffers.h"
#include "runtime/backend/cuda/sequence_state.h"

namespace hearth {

struct BackendPlan {
  GpuPassShape shape;
  QsaDesc qsa;
  QsaPlan qsa_plan;
  uint32_t ring_rows = 0;
  uint32_t context_tokens_max = 0;  // of any sequence
  uint64_t device_buffer_bytes = 0;
  uint64_t pinned_bytes = 0;
  ExchangeForms forms;  // of experts' rows in recorded windows
};

// InvalidArgument, naming the bound, when the kernels do not cover the model or the limits.
absl::StatusOr<BackendPlan> PlanBackend(const ModelGeometry& g, const CudaBackendOptions& options);

SequenceShape SequenceShapeOf(const BackendPlan& plan, uint32_t context_tokens_max);

// What an allocation was for, which decides what can be done about it.
enum class RoomFor : uint8_t { kWeights, kBuffers, kSequence };

// The same error; where there is no room, with what was asked for in front and what to lower
// behind.
absl::Status NoRoom(const absl::Status& status, std::string_view what, RoomFor room_for);

}  // namespace hearth
