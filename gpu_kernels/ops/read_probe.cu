// The kernel and the clockwork of gpu_kernels/ops/read_probe.h.
#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/read_probe.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kBlocksPerMultiprocessor = 4;
constexpr int kLoadsInFlight = 8;  // of 16 bytes for each lane: 256 KiB on a multiprocessor

__global__ void __launch_bounds__(kThreads)
    ReadProbeKernel(const uint4* from, uint64_t count, unsigned long long* sink) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  uint32_t sum = 0;
  uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kLoadsInFlight - 1) * stride < count; i += kLoadsInFlight * stride) {
    uint4 v[kLoadsInFlight];
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) v[j] = __ldg(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = __ldg(from + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  sum = __reduce_add_sync(0xFFFFFFFFu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(sink, static_cast<unsigned long long>(sum));
}

}  // namespace

absl::Status LaunchReadProbe(const DeviceBuffer& from, uint64_t* sink, const GpuLimits& gpu,
                             CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t blocks = std::max(1u, gpu.multiprocessor_count) * kBlocksPerMultiprocessor;
  ReadProbeKernel<<<blocks, kThreads, 0, stream.get()>>>(
      reinterpret_cast<const uint4*>(from.data()), from.bytes() / sizeof(uint4),
      reinterpret_cast<unsigned long long*>(sink));
  return CudaStatus(cudaGetLastError(), "launch of the read probe");
}

namespace {

// Bytes per second of the best of a few rounds of `enqueue`, which moves `bytes`.
template <class Enqueue>
absl::StatusOr<double> BestRate(const UniqueStream& stream, uint64_t bytes,
                                const Enqueue& enqueue) {
  constexpr int kRounds = 6;  // the first also loads the kernel and raises the clocks
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(stream.view().gpu()));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(stream.view().gpu()));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    HEARTH_RETURN_IF_ERROR(enqueue());
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
    if (seconds > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

uint64_t ProbeBytes(const GpuInfo& gpu) {
  return std::min(2_GiB, gpu.memory_bytes / 4 / 256 * 256);
}

}  // namespace

absl::StatusOr<double> MeasureDeviceReadRate(const GpuInfo& gpu) {
  const uint64_t bytes = ProbeBytes(gpu);
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Create(gpu.id, bytes));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer sink, DeviceBuffer::Create(gpu.id, sizeof(uint64_t)));
  HEARTH_RETURN_IF_ERROR(FillBytes(memory, std::byte{0x5A}, stream.view()));
  HEARTH_RETURN_IF_ERROR(FillBytes(sink, std::byte{0}, stream.view()));
  return BestRate(stream, bytes, [&] {
    return LaunchReadProbe(memory, reinterpret_cast<uint64_t*>(sink.data()), gpu.limits,
                           stream.view());
  });
}

absl::StatusOr<double> MeasureDeviceCopyRate(const GpuInfo& gpu) {
  const uint64_t bytes = ProbeBytes(gpu) / 2;
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu.id));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer from, DeviceBuffer::Create(gpu.id, bytes));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceBuffer::Create(gpu.id, bytes));
  HEARTH_RETURN_IF_ERROR(FillBytes(from, std::byte{0x5A}, stream.view()));
  return BestRate(stream, 2 * bytes, [&] {
    return CudaStatus(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice,
                                      stream.view().get()),
                      "copy inside the card's memory");
  });
}

}  // namespace hearth
