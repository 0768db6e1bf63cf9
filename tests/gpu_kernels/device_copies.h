// Vectors of the host in device memory and back, for tests and benchmarks.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "runtime/base/status.h"

namespace hearth {

// The copy has arrived.
template <class T>
absl::StatusOr<DeviceBuffer> DeviceCopy(std::span<const T> values, const UniqueStream& stream) {
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                          DeviceBuffer::Create(stream.view().gpu(), values.size_bytes()));
  HEARTH_RETURN_IF_ERROR(CopyToDevice(std::as_bytes(values), buffer, 0, stream.view()));
  HEARTH_RETURN_IF_ERROR(stream.Synchronize());
  return buffer;
}
template <class T>
absl::StatusOr<DeviceBuffer> DeviceCopy(const std::vector<T>& values, const UniqueStream& stream) {
  return DeviceCopy(std::span<const T>(values), stream);
}

// As many values as `to` has.
template <class T>
absl::Status ReadBack(const DeviceBuffer& from, std::vector<T>* to, const UniqueStream& stream) {
  HEARTH_RETURN_IF_ERROR(
      CopyToHost(from, 0, std::as_writable_bytes(std::span(*to)), stream.view()));
  return stream.Synchronize();
}

}  // namespace hearth
