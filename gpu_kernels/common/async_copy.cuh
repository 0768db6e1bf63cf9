// Copies into shared memory that run ahead of the threads that use them, barriers in shared memory,
// and counters at which blocks of threads wait for each other. Instructions of PTX for sm_80 and
// later; from sm_90 a copy is one instruction of the copy engine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Looks at a barrier, of some microseconds each: an error of the launch instead of a hang.
inline constexpr uint32_t kSharedLooksMax = 1u << 20;

// A barrier in shared memory (PTX mbarrier). Phases alternate between parity 0 and 1, the first has
// 0; a phase ends when `count` arrivals and all bytes that were announced have come.
class SharedBarrier {
 public:
  __device__ void Init(uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(Address()), "r"(count) : "memory");
  }
  __device__ void Arrive() {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(Address())
                 : "memory");
  }
  // Returns when the phase of this parity has ended; at once for parity 1 of a fresh barrier.
  __device__ void Wait(uint32_t parity) const {
    for (uint32_t looks = 0; !Ended(parity);) {
      if (++looks == kSharedLooksMax) __trap();
    }
  }
  // Whether the phase of this parity has ended.
  __device__ bool Has(uint32_t parity) const {
    uint32_t ended;
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(ended)
        : "r"(Address()), "r"(parity)
        : "memory");
    return ended != 0;
  }
  __device__ uint32_t Address() const { return SharedAddress(&word_); }

 private:
  __device__ bool Ended(uint32_t parity) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t ended;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(ended)
        : "r"(Address()), "r"(parity)
        : "memory");
    return ended != 0;
#else
    return Has(parity);
#endif
  }

  uint64_t word_;
};

// Makes fresh barriers known to the copy engine; before the __syncthreads that ends their set-up.
__device__ inline void PublishBarriers() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Bytes that lie one after the other; both ends and the count on 16.
struct CopyRange {
  std::byte* to = nullptr;  // shared memory
  const std::byte* from = nullptr;
  uint32_t bytes = 0;  // possibly none
};

// Arrivals of one CopyAhead at its barrier.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr uint32_t kCopyArrivals = 1;
#else
inline constexpr uint32_t kCopyArrivals = 32;
#endif

// All lanes of a warp call. A phase of `arrived`, a barrier of kCopyArrivals, ends when all ranges
// are there, of which the first may be empty only with all others.
template <int kRanges>
__device__ inline void CopyAhead(const CopyRange (&ranges)[kRanges], SharedBarrier* arrived) {
  const uint32_t lane = threadIdx.x % 32;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (lane != 0) return;
  uint32_t bytes = 0;
#pragma unroll
  for (const CopyRange& range : ranges) bytes += range.bytes;
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
          arrived->Address()),
      "r"(bytes)
      : "memory");
  if (ranges[0].bytes == 0) return;
#pragma unroll
  for (const CopyRange& range : ranges) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(SharedAddress(range.to)),
        "l"(range.from), "r"(range.bytes), "r"(arrived->Address())
        : "memory");
  }
#else
  for (const CopyRange& range : ranges) {
    for (uint32_t at = lane * 16; at < range.bytes; at += 32 * 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(range.to) + at),
                   "l"(range.from + at)
                   : "memory");
    }
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(arrived->Address())
               : "memory");
#endif
}

// A counter in device memory that other blocks of threads add to: what they wrote before is seen
// after.
__device__ inline uint32_t LoadRelaxed(const uint32_t* counter) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
// After a load of a counter: what was written before it was added to is seen from here on.
__device__ inline void FenceAcquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ inline void AddRelease(uint32_t* counter, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

}  // namespace hearth
