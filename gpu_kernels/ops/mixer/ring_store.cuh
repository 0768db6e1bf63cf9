// Leaves the last rows of a prompt in the rings of its segments. A launch of its own: the
// convolution before it still reads the rows that these replace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/pass_table.h"

namespace hearth {

inline constexpr uint32_t kRingStoreThreads = 256;

struct ConvRing {  // of one layer
  uint32_t layer;
  __device__ float* operator()(const GpuSegment& segment) const {
    return segment.layers[layer].conv_ring;
  }
};
struct NgramRing {
  __device__ float* operator()(const GpuSegment& segment) const { return segment.ngram_ring; }
};

// Block (columns, row from the end, segment).
template <class RingOf>
__global__ void __launch_bounds__(kRingStoreThreads)
    RingStoreKernel(GpuPassTable pass, RingOf ring_of, const float4* rows, uint32_t vectors) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  if (blockIdx.z >= *pass.segment_count) return;
  const GpuSegment& segment = pass.segments[blockIdx.z];
  const uint32_t i = blockIdx.x * kRingStoreThreads + threadIdx.x;
  if (blockIdx.y >= segment.rows || i >= vectors) return;
  const uint32_t index = segment.rows - 1 - blockIdx.y;
  const uint32_t slot = (segment.base + index) & (pass.ring_rows - 1);
  auto* ring = reinterpret_cast<float4*>(ring_of(segment));
  ring[size_t{slot} * vectors + i] = rows[size_t{segment.row_begin + index} * vectors + i];
}

// `rows` (rows of the pass, width).
template <class RingOf>
absl::Status LaunchRingStore(const GpuPassTable& pass, RingOf ring_of, const float* rows,
                             uint32_t width, CudaStreamView stream) {
  const uint32_t vectors = width / 4;
  const dim3 grid((vectors + kRingStoreThreads - 1) / kRingStoreThreads,
                  std::min(pass.rows, pass.ring_rows), std::min(pass.rows, kPassSegmentsMax));
  return LaunchOverlapping("launch of the ring's update", RingStoreKernel<RingOf>,
                           {.blocks = grid, .threads = kRingStoreThreads}, stream, pass, ring_of,
                           reinterpret_cast<const float4*>(rows), vectors);
}

}  // namespace hearth
