// Clusters of blocks of threads (compute capability 9.0): their barrier and their shared memory.
// Where a card has none, a cluster is one block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace hearth {

#ifdef __CUDACC__

// Which block of its cluster this is.
__device__ inline uint32_t ClusterRank() {
  uint32_t rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// A barrier of all threads of a cluster in two halves. What was written to shared memory, also of
// other blocks, before the arrival is visible after the wait. A block's shared memory may be
// written by others once it has arrived, and must not be after it has ended.
__device__ inline void ArriveAtCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void AwaitCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// The same place in the shared memory of block `rank` of the cluster.
template <class T>
__device__ inline T* InClusterBlock(T* shared, uint32_t rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint64_t mapped;
  asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(reinterpret_cast<uint64_t>(shared)), "r"(rank));
  return reinterpret_cast<T*>(mapped);
#else
  (void)rank;
  return shared;
#endif
}

#endif  // __CUDACC__

}  // namespace hearth
