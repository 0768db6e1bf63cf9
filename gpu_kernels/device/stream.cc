#include "gpu_kernels/device/stream.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {

void StreamTraits::Close(Type stream) { (void)cudaStreamDestroy(stream); }
void EventTraits::Close(Type event) { (void)cudaEventDestroy(event); }

absl::StatusOr<UniqueStream> UniqueStream::Create(GpuId gpu, StreamPriority priority) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  int lowest = 0, highest = 0;  // of equal value on a GPU without priorities
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "stream priorities"));
  cudaStream_t stream = nullptr;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                              priority == StreamPriority::kHigh ? highest : lowest),
                 "stream"));
  return UniqueStream(gpu, UniqueHandle<StreamTraits>(stream));
}

absl::Status UniqueStream::Synchronize() const {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  return CudaStatus(cudaStreamSynchronize(stream_.get()), "work on the GPU");
}

absl::StatusOr<bool> UniqueStream::HasEnded() const {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  const cudaError_t error = cudaStreamQuery(stream_.get());
  if (error == cudaErrorNotReady) return false;
  HEARTH_RETURN_IF_ERROR(CudaStatus(error, "work on the GPU"));
  return true;
}

absl::StatusOr<UniqueEvent> UniqueEvent::Create(GpuId gpu, EventKind kind) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  cudaEvent_t event = nullptr;
  const unsigned flags = kind == EventKind::kTimed ? cudaEventDefault : cudaEventDisableTiming;
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, flags), "event"));
  return UniqueEvent(gpu, UniqueHandle<EventTraits>(event));
}

absl::Status UniqueEvent::Record(CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  return CudaStatus(cudaEventRecord(event_.get(), stream.get()), "event");
}

absl::StatusOr<bool> UniqueEvent::HasPassed() const {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  const cudaError_t error = cudaEventQuery(event_.get());
  if (error == cudaErrorNotReady) return false;
  HEARTH_RETURN_IF_ERROR(CudaStatus(error, "work on the GPU"));
  return true;
}

absl::Status UniqueEvent::HoldBack(CudaStreamView stream) const {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  return CudaStatus(cudaStreamWaitEvent(stream.get(), event_.get(), 0), "event");
}

absl::StatusOr<double> UniqueEvent::SecondsBetween(const UniqueEvent& from, const UniqueEvent& to) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(to.gpu_));
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(from.event_.get()), "event"));
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(to.event_.get()), "event"));
  float milliseconds = 0;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, from.event_.get(), to.event_.get()), "event"));
  return double{milliseconds} * 1e-3;
}

}  // namespace hearth
