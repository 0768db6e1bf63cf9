// gpu_kernels/device/*.h in a build without CUDA: nothing can be created, so nothing need be
// closed.
#include "gpu_kernels/device/without_cuda.h"

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/gpu_memory.h"
#include "gpu_kernels/device/graph.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/device/stream.h"
#include "runtime/base/status.h"

namespace hearth {

absl::Status WithoutCuda(std::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(ToAbsl(what), ": this build has no CUDA; build it where nvcc is found"));
}

absl::StatusOr<GpuList> ListGpus() { return WithoutCuda("GPUs"); }

void StreamTraits::Close(Type) {}
void EventTraits::Close(Type) {}
void DeviceMemoryTraits::Close(Type) {}
void PinnedMemoryTraits::Close(Type) {}
void RegistrationTraits::Close(Type) {}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(GpuId, uint64_t) {
  return WithoutCuda("pinned memory");
}
absl::StatusOr<RegisteredMemory> RegisteredMemory::Create(GpuId, std::span<const std::byte>,
                                                          Access) {
  return WithoutCuda("pinned memory");
}
absl::StatusOr<GpuMemory> ReadGpuMemory(GpuId) { return WithoutCuda("free memory of the GPU"); }
absl::Status CheckDeviceMemory(const DeviceBuffer&, CudaStreamView) {
  return WithoutCuda("memory of the GPU");
}
void GraphTraits::Close(Type) {}

absl::StatusOr<UniqueStream> UniqueStream::Create(GpuId, StreamPriority) {
  return WithoutCuda("stream");
}
absl::StatusOr<bool> UniqueStream::HasEnded() const { return WithoutCuda("stream"); }
absl::Status UniqueStream::Synchronize() const { return WithoutCuda("stream"); }
absl::StatusOr<UniqueEvent> UniqueEvent::Create(GpuId, EventKind) { return WithoutCuda("event"); }
absl::StatusOr<bool> UniqueEvent::HasPassed() const { return WithoutCuda("event"); }
absl::Status UniqueEvent::HoldBack(CudaStreamView) const { return WithoutCuda("event"); }
absl::Status UniqueEvent::Record(CudaStreamView) { return WithoutCuda("event"); }
absl::StatusOr<double> UniqueEvent::SecondsBetween(const UniqueEvent&, const UniqueEvent&) {
  return WithoutCuda("event");
}

absl::StatusOr<UniqueGraph> UniqueGraph::Capture(CudaStreamView,
                                                 absl::FunctionRef<absl::Status(CudaStreamView)>) {
  return WithoutCuda("graph");
}
absl::Status UniqueGraph::Launch(CudaStreamView) const { return WithoutCuda("graph"); }

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(GpuId, uint64_t) {
  return WithoutCuda("device memory");
}
absl::Status CopyToDevice(std::span<const std::byte>, const DeviceBuffer&, uint64_t,
                          CudaStreamView) {
  return WithoutCuda("copy to the GPU");
}
absl::Status CopyToHost(const DeviceBuffer&, uint64_t, std::span<std::byte>, CudaStreamView) {
  return WithoutCuda("copy from the GPU");
}
absl::Status FillBytes(const DeviceBuffer&, std::byte, CudaStreamView) {
  return WithoutCuda("fill");
}

}  // namespace hearth
