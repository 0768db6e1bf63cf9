// How fast a GPU reads and copies its own memory: the measures under every floor on that card.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"

namespace hearth {

// Reads `from` once, 16 bytes a lane, and adds a sum of it to *sink (device), so that no read can
// be left out. A tail of less than 16 bytes is not read. Enqueues on `stream` and returns.
absl::Status LaunchReadProbe(const DeviceBuffer& from, uint64_t* sink, const GpuLimits& gpu,
                             CudaStreamView stream);

// Bytes per second: the best of a few reads of a buffer far larger than the second-level cache.
// Takes a context, a quarter of the card's memory but at most 2 GiB, and less than a second; waits.
// Unimplemented in a build without CUDA.
absl::StatusOr<double> MeasureDeviceReadRate(const GpuInfo& gpu);

// The same for a copy inside the card's memory by the driver: bytes read plus bytes written.
absl::StatusOr<double> MeasureDeviceCopyRate(const GpuInfo& gpu);

}  // namespace hearth
