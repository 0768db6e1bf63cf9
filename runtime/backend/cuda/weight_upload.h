// Takes the dense weights to the card, through pinned memory, so that the copies run at the link's
// rate while the host gathers the next piece.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "runtime/backend/cuda/cuda_backend.h"
#include "runtime/backend/cuda/device_weights.h"

namespace hearth {

// A buffer with the whole image. ResourceExhausted when there is no room. Waits for the copies.
absl::StatusOr<DeviceBuffer> UploadWeights(const WeightImage& image, GpuId gpu,
                                           CudaStreamView stream, Clock& clock,
                                           const UploadProgress& progress);

}  // namespace hearth
