// The best blocks of a row: exact, of equal scores the lower blocks, in ascending order. One block
// of threads for each row.
//
// Scores are not negative, so that their bits order as they do; a NaN is larger than all. A radix
// selection finds the smallest score that is still chosen: digits of 12, 12 and 7 bits, a histogram
// each. Then bitmaps of what lies above it and of what equals it give the choice by rank.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "gpu_kernels/ops/attention/qsa_select.cuh"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 1024;
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kValuesPerThread = 16;  // in registers, when a row has no more
constexpr uint32_t kDigitBits = 12;
constexpr uint32_t kBins = 1u << kDigitBits;
constexpr uint32_t kBinsPerThread = kBins / kThreads;
constexpr uint32_t kWords = kQsaBlocksMax / 32;
constexpr uint32_t kWordsPerThread = kWords / kThreads;
constexpr uint32_t kKeyBits = 31;

struct Shared {
  union {
    uint32_t bins[kBins];
    struct {
      uint32_t above[kWords];
      uint32_t equal[kWords];
    } bitmap;
  };
  uint2 warp_totals[kWarps];
  uint32_t digit;
  uint32_t remaining;
};

// Sums of the two counts over the threads before this one. All threads call.
__device__ uint2 SumBefore(uint2 own, Shared* shared) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t warp = threadIdx.x / kWarpLanes;
  uint2 sum = own;
#pragma unroll
  for (uint32_t offset = 1; offset < kWarpLanes; offset *= 2) {
    const uint32_t x = __shfl_up_sync(kEveryLane, sum.x, offset);
    const uint32_t y = __shfl_up_sync(kEveryLane, sum.y, offset);
    if (lane >= offset) sum = {sum.x + x, sum.y + y};
  }
  if (lane == kWarpLanes - 1) shared->warp_totals[warp] = sum;
  __syncthreads();
  uint2 before = lane < warp ? shared->warp_totals[lane] : uint2{0, 0};
  before.x = __reduce_add_sync(kEveryLane, before.x);
  before.y = __reduce_add_sync(kEveryLane, before.y);
  __syncthreads();
  return {before.x + sum.x - own.x, before.y + sum.y - own.y};
}

// The keys of a row: score i is seen by thread i % kThreads, a whole warp at a time.
template <bool kInRegisters>
struct Row {
  const float* scores;
  uint32_t count;
  uint32_t key[kInRegisters ? kValuesPerThread : 1];

  __device__ uint32_t Load(uint32_t i) const { return __float_as_uint(scores[i]) & 0x7FFFFFFFu; }
  __device__ Row(const float* scores_in, uint32_t count_in) : scores(scores_in), count(count_in) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (uint32_t j = 0; j < kValuesPerThread; ++j) {
        const uint32_t i = j * kThreads + threadIdx.x;
        key[j] = i < count ? Load(i) : 0;
      }
    }
  }
  // visit(i, key, valid) by whole warps.
  template <class Visit>
  __device__ void ForEach(Visit visit) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (uint32_t j = 0; j < kValuesPerThread; ++j) {
        if (j * kThreads >= count) break;
        const uint32_t i = j * kThreads + threadIdx.x;
        visit(i, key[j], i < count);
      }
    } else {
#pragma unroll 8
      for (uint32_t begin = 0; begin < count; begin += kThreads) {
        const uint32_t i = begin + threadIdx.x;
        visit(i, i < count ? Load(i) : 0, i < count);
      }
    }
  }
};

// Counts the digits at `shift` of keys whose higher bits are those of `prefix`. Equal scores are
// mostly zeros: those are counted a warp at a time.
template <class RowT>
__device__ void CountDigits(const RowT& row, uint32_t prefix, uint32_t shift, uint32_t bits,
                            uint32_t* bins) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t mask = (1u << bits) - 1;
  row.ForEach([&](uint32_t, uint32_t key, bool valid) {
    const bool counts = valid && (uint64_t{key} >> (shift + bits)) == prefix;
    const uint32_t zeros = __ballot_sync(kEveryLane, counts && key == 0);
    if (zeros != 0 && lane == 0) atomicAdd(&bins[0], __popc(zeros));
    if (counts && key != 0) atomicAdd(&bins[key >> shift & mask], 1u);
  });
}

// The bin in which the remaining-th largest key lies, and how many of it are still to be chosen:
// into shared->digit and shared->remaining.
__device__ void FindDigit(uint32_t remaining, Shared* shared) {
  // Thread t sums bins from the top: kBins - 1 - t * kBinsPerThread and below.
  uint32_t counts[kBinsPerThread];
  uint32_t own = 0;
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    counts[i] = shared->bins[kBins - 1 - (threadIdx.x * kBinsPerThread + i)];
    own += counts[i];
  }
  uint32_t before = SumBefore({own, 0}, shared).x;
  if (before < remaining && remaining <= before + own) {
#pragma unroll
    for (uint32_t i = 0; i < kBinsPerThread; ++i) {
      if (before < remaining && remaining <= before + counts[i]) {
        shared->digit = kBins - 1 - (threadIdx.x * kBinsPerThread + i);
        shared->remaining = remaining - before;
      }
      before += counts[i];
    }
  }
  __syncthreads();
}

// The `remaining`-th largest key; on return `remaining` is how many of its equals are chosen.
template <class RowT>
__device__ uint32_t FindThreshold(const RowT& row, uint32_t* remaining, Shared* shared) {
  uint32_t prefix = 0;
  uint32_t shift = kKeyBits;
  while (shift > 0) {
    const uint32_t bits = min(kDigitBits, shift);
    shift -= bits;
    for (uint32_t i = threadIdx.x; i < kBins; i += kThreads) shared->bins[i] = 0;
    __syncthreads();
    CountDigits(row, prefix, shift, bits, shared->bins);
    __syncthreads();
    FindDigit(*remaining, shared);
    prefix = prefix << bits | shared->digit;
    *remaining = shared->remaining;
    __syncthreads();
  }
  return prefix;
}

// Writes the numbers of the chosen blocks, ascending.
template <class RowT>
__device__ void WriteChoice(const RowT& row, uint32_t threshold, uint32_t equals, Shared* shared,
                            uint32_t* chosen) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  for (uint32_t i = threadIdx.x; i < kWords; i += kThreads) {
    shared->bitmap.above[i] = 0;
    shared->bitmap.equal[i] = 0;
  }
  __syncthreads();
  row.ForEach([&](uint32_t i, uint32_t key, bool valid) {
    const uint32_t above = __ballot_sync(kEveryLane, valid && key > threshold);
    const uint32_t equal = __ballot_sync(kEveryLane, valid && key == threshold);
    if (lane == 0 && i < kQsaBlocksMax) {
      shared->bitmap.above[i / 32] = above;
      shared->bitmap.equal[i / 32] = equal;
    }
  });
  __syncthreads();
  uint32_t above[kWordsPerThread];
  uint32_t equal[kWordsPerThread];
  uint2 own = {0, 0};
#pragma unroll
  for (uint32_t w = 0; w < kWordsPerThread; ++w) {
    above[w] = shared->bitmap.above[threadIdx.x * kWordsPerThread + w];
    equal[w] = shared->bitmap.equal[threadIdx.x * kWordsPerThread + w];
    own.x += __popc(above[w]);
    own.y += __popc(equal[w]);
  }
  const uint2 before = SumBefore(own, shared);
  uint32_t equals_before = before.y;
  uint32_t rank = before.x + min(before.y, equals);
#pragma unroll
  for (uint32_t w = 0; w < kWordsPerThread; ++w) {
    for (uint32_t left = above[w] | equal[w]; left != 0; left &= left - 1) {
      const uint32_t bit = left & (0 - left);
      const bool is_equal = (equal[w] & bit) != 0;
      if (!is_equal || equals_before < equals) {
        chosen[rank++] = (threadIdx.x * kWordsPerThread + w) * 32 + (__ffs(bit) - 1);
      }
      equals_before += is_equal ? 1 : 0;
    }
  }
}

template <bool kInRegisters>
__device__ void ChooseBlocks(const float* scores, uint32_t count, uint32_t chosen_count,
                             Shared* shared, uint32_t* chosen) {
  const Row<kInRegisters> row(scores, count);
  uint32_t equals = chosen_count;
  const uint32_t threshold = FindThreshold(row, &equals, shared);
  WriteChoice(row, threshold, equals, shared, chosen);
}

// grid: (rows of the launch).
__global__ void __launch_bounds__(kThreads, 1) QsaChooseKernel(const QsaSelectKernelArgs args) {
  __shared__ Shared shared;
  const uint32_t row = args.row_begin + blockIdx.x;
  const uint32_t position = PlaceOf(args.pass, args.layer, row).position;
  const uint32_t blocks = min((position + 1) / args.block_tokens, kQsaBlocksMax);
  if (blocks <= args.block_count_max) return;
  const float* const scores = args.scores + size_t{blockIdx.x} * args.score_stride;
  uint32_t* const chosen = args.chosen + size_t{row} * args.block_count_max;
  if (blocks <= kThreads * kValuesPerThread) {
    ChooseBlocks<true>(scores, blocks, args.block_count_max, &shared, chosen);
  } else {
    ChooseBlocks<false>(scores, blocks, args.block_count_max, &shared, chosen);
  }
}

}  // namespace

absl::Status EnqueueQsaChoice(const QsaSelectKernelArgs& args, cudaStream_t stream) {
  QsaChooseKernel<<<args.row_end - args.row_begin, kThreads, 0, stream>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of the choice of attention blocks");
}

}  // namespace hearth
