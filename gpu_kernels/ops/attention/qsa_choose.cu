// The best blocks of a row: exact, of equal scores the lower blocks, in ascending order. One block
// of threads for each row.
//
// Scores are not negative, so that their bits order as they do; a NaN is larger than all. As many
// threads as blocks are chosen hold a score that is no less than the `block_count_max`-th best of
// the threads' own maxima: this bound leaves few candidates of a long row. A radix selection among
// those (digits of 12, 12 and 7 bits, a histogram each) finds the smallest score that is still
// chosen. Then bitmaps of what lies above it and of what equals it give the choice by rank. When
// more candidates are left than have a place, the radix selection runs over the whole row.
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "gpu_kernels/ops/attention/qsa_select.cuh"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 1024;
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kKeysPerThread = 16;  // of a chunk
constexpr uint32_t kChunk = kThreads * kKeysPerThread;
constexpr uint32_t kDigitBits = 12;
constexpr uint32_t kBins = 1u << kDigitBits;
constexpr uint32_t kBinsPerThread = kBins / kThreads;
constexpr uint32_t kWords = kQsaBlocksMax / 32;
constexpr uint32_t kWordsPerThread = kWords / kThreads;
constexpr uint32_t kKeyBits = 31;
constexpr uint32_t kBoundLowBit = 15;  // a bound of sixteen bits is close enough
constexpr uint32_t kCandidatesPerThread = 4;
constexpr uint32_t kCandidatesMax = kCandidatesPerThread * kThreads;

struct Shared {
  union {
    uint32_t bins[kBins];
    struct {
      uint32_t above[kWords];
      uint32_t equal[kWords];
    } bitmap;
  };
  uint32_t candidate_key[kCandidatesMax];
  uint16_t candidate_block[kCandidatesMax];
  uint2 warp_totals[kWarps];
  uint32_t digit;
  uint32_t remaining;
};

// Sums of the two counts over the threads before this one; in `all`, over all threads. All threads
// call.
__device__ uint2 SumBefore(uint2 own, Shared* shared, uint2* all) {
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
  static_assert(kWarps == kWarpLanes);
  const uint2 total = shared->warp_totals[lane];
  *all = {__reduce_add_sync(kEveryLane, total.x), __reduce_add_sync(kEveryLane, total.y)};
  const uint2 before = {__reduce_add_sync(kEveryLane, lane < warp ? total.x : 0),
                        __reduce_add_sync(kEveryLane, lane < warp ? total.y : 0)};
  __syncthreads();
  return {before.x + sum.x - own.x, before.y + sum.y - own.y};
}

// Sixteen keys of a row a thread: blocks begin + j * kThreads + thread; zero beyond the row.
struct Chunk {
  uint32_t key[kKeysPerThread];

  __device__ Chunk(const float* scores, uint32_t begin, uint32_t count) {
#pragma unroll
    for (uint32_t j = 0; j < kKeysPerThread; ++j) {
      const uint32_t i = begin + j * kThreads + threadIdx.x;
      key[j] = i < count ? __float_as_uint(scores[i]) & 0x7FFFFFFFu : 0;
    }
  }
};

// The whole row, from memory each time.
struct WholeRow {
  const float* scores;
  uint32_t count;

  // visit(block, key, valid) by whole warps, a warp's blocks being those of one word of a bitmap.
  template <class Visit>
  __device__ void ForEach(Visit visit) const {
    for (uint32_t begin = 0; begin < count; begin += kChunk) {
      const Chunk chunk(scores, begin, count);
#pragma unroll
      for (uint32_t j = 0; j < kKeysPerThread; ++j) {
        const uint32_t i = begin + j * kThreads + threadIdx.x;
        if (begin + j * kThreads < count) visit(i, chunk.key[j], i < count);
      }
    }
  }
};

struct Candidates {
  const Shared& shared;
  uint32_t count;

  template <class Visit>
  __device__ void ForEach(Visit visit) const {
    for (uint32_t begin = 0; begin < count; begin += kThreads) {
      const uint32_t i = begin + threadIdx.x;
      const bool valid = i < count;
      visit(valid ? shared.candidate_block[i] : 0, valid ? shared.candidate_key[i] : 0, valid);
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
  uint2 all;
  uint32_t before = SumBefore({own, 0}, shared, &all).x;
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

// At least `count` keys of the row are no less than the result. `largest`: of this thread's keys.
__device__ uint32_t LowerBound(uint32_t largest, uint32_t count) {
  uint32_t bound = 0;
  for (uint32_t bit = kKeyBits; bit-- > kBoundLowBit;) {
    const uint32_t higher = bound | 1u << bit;
    if (static_cast<uint32_t>(__syncthreads_count(largest >= higher)) >= count) bound = higher;
  }
  return bound;
}

// Keys of a chunk that are no less than `bound`, behind `found` others. Returns how many there are
// then, counting those that had no place.
__device__ uint32_t CollectCandidates(const Chunk& chunk, uint32_t begin, uint32_t count,
                                      uint32_t bound, uint32_t found, Shared* shared) {
  uint32_t chosen = 0;
#pragma unroll
  for (uint32_t j = 0; j < kKeysPerThread; ++j) {
    const uint32_t i = begin + j * kThreads + threadIdx.x;
    chosen += i < count && chunk.key[j] >= bound ? 1 : 0;
  }
  uint2 all;
  uint32_t at = found + SumBefore({chosen, 0}, shared, &all).x;
#pragma unroll
  for (uint32_t j = 0; j < kKeysPerThread; ++j) {
    const uint32_t i = begin + j * kThreads + threadIdx.x;
    if (i >= count || chunk.key[j] < bound) continue;
    if (at < kCandidatesMax) {
      shared->candidate_key[at] = chunk.key[j];
      shared->candidate_block[at] = static_cast<uint16_t>(i);
    }
    ++at;
  }
  return found + all.x;
}

// All candidates of the row; more than kCandidatesMax when they had no place.
__device__ uint32_t FindCandidates(const float* scores, uint32_t count, uint32_t chosen_count,
                                   Shared* shared) {
  const Chunk first(scores, 0, count);
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t key : first.key) largest = max(largest, key);
  for (uint32_t begin = kChunk; begin < count; begin += kChunk) {
    const Chunk chunk(scores, begin, count);
#pragma unroll
    for (uint32_t key : chunk.key) largest = max(largest, key);
  }
  const uint32_t bound = chosen_count <= kThreads ? LowerBound(largest, chosen_count) : 0;
  uint32_t found = CollectCandidates(first, 0, count, bound, 0, shared);
  for (uint32_t begin = kChunk; begin < count; begin += kChunk) {
    found = CollectCandidates(Chunk(scores, begin, count), begin, count, bound, found, shared);
  }
  __syncthreads();
  return found;
}

// Writes the numbers of the blocks in the bitmaps, ascending: all above and the first `equals`
// equal ones.
__device__ void WriteChoice(uint32_t equals, Shared* shared, uint32_t* chosen) {
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
  uint2 all;
  const uint2 before = SumBefore(own, shared, &all);
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

template <class RowT>
__device__ void ChooseFrom(const RowT& row, uint32_t chosen_count, Shared* shared,
                           uint32_t* chosen) {
  uint32_t equals = chosen_count;
  const uint32_t threshold = FindThreshold(row, &equals, shared);
  for (uint32_t i = threadIdx.x; i < kWords; i += kThreads) {
    shared->bitmap.above[i] = 0;
    shared->bitmap.equal[i] = 0;
  }
  __syncthreads();
  row.ForEach([&](uint32_t block, uint32_t key, bool valid) {
    if (!valid || key < threshold) return;
    uint32_t* const words = key > threshold ? shared->bitmap.above : shared->bitmap.equal;
    atomicOr(&words[block / 32], 1u << block % 32);
  });
  __syncthreads();
  WriteChoice(equals, shared, chosen);
}

// grid: (rows of the launch).
__global__ void __launch_bounds__(kThreads, 1) QsaChooseKernel(const QsaSelectKernelArgs args) {
  __shared__ Shared shared;
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t row = args.row_begin + blockIdx.x;
  const uint32_t position = PlaceOf(args.pass, args.layer, row).position;
  const uint32_t blocks = min((position + 1) / args.block_tokens, kQsaBlocksMax);
  if (blocks <= args.block_count_max) return;
  const float* const scores = args.scores + size_t{blockIdx.x} * args.score_stride;
  uint32_t* const chosen = args.chosen + size_t{row} * args.block_count_max;
  const uint32_t found = FindCandidates(scores, blocks, args.block_count_max, &shared);
  if (found <= kCandidatesMax) {
    ChooseFrom(Candidates{shared, found}, args.block_count_max, &shared, chosen);
  } else {
    ChooseFrom(WholeRow{scores, blocks}, args.block_count_max, &shared, chosen);
  }
}

}  // namespace

absl::Status EnqueueQsaChoice(const QsaSelectKernelArgs& args, CudaStreamView stream) {
  return LaunchOverlapping("launch of the choice of attention blocks", QsaChooseKernel,
                           {.blocks = args.row_end - args.row_begin, .threads = kThreads}, stream,
                           args);
}

}  // namespace hearth
