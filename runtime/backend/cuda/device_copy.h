// Copies between raw addresses: the card's, and pinned host memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"

namespace hearth {

// Enqueues and returns. Either side may be the card's memory or pinned host memory.
absl::Status CopyAsync(void* to, const void* from, uint64_t bytes, CudaStreamView stream);

template <class T>
absl::Status CopyArray(T* to, const T* from, uint64_t count, CudaStreamView stream) {
  return CopyAsync(to, from, count * sizeof(T), stream);
}

}  // namespace hearth
