// How much memory a GPU has left, and whether memory that was handed out is really there.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"

namespace hearth {

struct GpuMemory {
  uint64_t free_bytes = 0;  // now, of what this process may still take
  uint64_t total_bytes = 0;
};

// Creates a context where there is none, which takes a few hundred MiB by itself: what is free is
// free beside it.
absl::StatusOr<GpuMemory> ReadGpuMemory(GpuId gpu);

// Writes all of `buffer` and reads a sample of every 2 MiB page back: memory that the driver
// promised but does not have, or that two owners share, is an error here and not a wrong answer
// later. DataLoss names the first page that differs. Leaves the buffer full of garbage; waits; a
// second for 100 GiB.
absl::Status CheckDeviceMemory(const DeviceBuffer& buffer, CudaStreamView stream);

}  // namespace hearth
