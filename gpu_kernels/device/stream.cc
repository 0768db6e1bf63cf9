#include "gpu_kernels/device/stream.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "runtime/base/status.h"

namespace hearth {

void StreamTraits::Close(Type stream) { (void)cudaStreamDestroy(stream); }
void EventTraits::Close(Type event) { (void)cudaEventDestroy(event); }

absl::StatusOr<UniqueStream> UniqueStream::Create(GpuId gpu) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  cudaStream_t stream = nullptr;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
  return UniqueStream(gpu, UniqueHandle<StreamTraits>(stream));
}

absl::Status UniqueStream::Synchronize() const {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  return CudaStatus(cudaStreamSynchronize(stream_.get()), "work on the GPU");
}

absl::StatusOr<UniqueEvent> UniqueEvent::Create(GpuId gpu) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu));
  cudaEvent_t event = nullptr;
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "event"));
  return UniqueEvent(gpu, UniqueHandle<EventTraits>(event));
}

absl::Status UniqueEvent::Record(CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
  return CudaStatus(cudaEventRecord(event_.get(), stream.get()), "event");
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
