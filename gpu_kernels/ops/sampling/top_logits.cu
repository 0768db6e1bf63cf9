// The kernels of top_logits.h. One logit: the best of every slice, then the best of those. More: a
// histogram of the rows' keys says from where on there are enough of them, those are collected and
// sorted. All sums are of integers, so that no order of blocks shows.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/sampling/top_logits.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kSlices = 64;  // blocks of one row
constexpr uint32_t kSliceThreads = 256;
constexpr uint32_t kBinBits = 11;  // of a key, from the top: sign, exponent and two bits more
constexpr uint32_t kBins = 1u << kBinBits;
constexpr uint32_t kCandidatesMax = 4096;  // of a row that are sorted
constexpr uint32_t kSortThreads = 1024;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Of one row. All but the candidates are zeros from launch to launch.
struct RowState {
  uint32_t bin_count[kBins];
  uint32_t candidate_count;
  uint32_t has_bad;  // NaN or +inf
  uint32_t unused[30];
  uint64_t candidate[kCandidatesMax];  // keys
};
static_assert(sizeof(RowState) % 128 == 0);

// Orders as (logit, then lower token) do, with -0 equal to +0.
__device__ inline uint64_t KeyOf(float logit, uint32_t token) {
  const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | ~token;
}
__device__ inline uint32_t TokenOf(uint64_t key) { return ~static_cast<uint32_t>(key); }
__device__ inline uint32_t BinOf(uint64_t key) {
  return static_cast<uint32_t>(key >> (64 - kBinBits));
}
__device__ inline bool IsBad(float logit) { return !(logit <= 3.402823466e+38f); }

__device__ inline uint64_t MaxOfWarp(uint64_t key) {
#pragma unroll
  for (uint32_t lanes = 16; lanes != 0; lanes /= 2) {
    key = max(key, static_cast<uint64_t>(__shfl_xor_sync(kAllLanes, key, lanes)));
  }
  return key;
}

// visit(key, logit) for the logits of this block's slice.
template <class Visit>
__device__ inline void ForSlice(const float* logits, uint32_t vocab_count, Visit visit) {
  const uint32_t slice = (vocab_count + kSlices - 1) / kSlices;
  const uint32_t begin = blockIdx.x * slice;
  const uint32_t end = min(begin + slice, vocab_count);
  for (uint32_t token = begin + threadIdx.x; token < end; token += kSliceThreads) {
    const float logit = logits[token];
    visit(KeyOf(logit, token), logit);
  }
}

// The best key of each slice is a candidate.
__global__ void __launch_bounds__(kSliceThreads)
    BestKernel(const float* logits, uint32_t vocab_count, RowState* states) {
  __shared__ uint64_t best[kSliceThreads / 32];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  RowState& state = states[blockIdx.y];
  uint64_t key = 0;
  bool bad = false;
  ForSlice(logits + uint64_t{blockIdx.y} * vocab_count, vocab_count,
           [&](uint64_t other, float logit) {
             key = max(key, other);
             bad |= IsBad(logit);
           });
  key = MaxOfWarp(key);
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = key;
  if (__syncthreads_or(bad) != 0 && threadIdx.x == 0) state.has_bad = 1;
  if (threadIdx.x != 0) return;
  for (uint32_t warp = 1; warp < kSliceThreads / 32; ++warp) key = max(key, best[warp]);
  state.candidate[blockIdx.x] = key;
  if (blockIdx.x == 0) state.candidate_count = kSlices;
}

__global__ void __launch_bounds__(kSliceThreads)
    CountKernel(const float* logits, uint32_t vocab_count, RowState* states) {
  __shared__ uint32_t bin_count[kBins];
  for (uint32_t i = threadIdx.x; i < kBins; i += kSliceThreads) bin_count[i] = 0;
  __syncthreads();
  AwaitLaunchBefore();
  AllowLaunchAfter();
  RowState& state = states[blockIdx.y];
  bool bad = false;
  ForSlice(logits + uint64_t{blockIdx.y} * vocab_count, vocab_count,
           [&](uint64_t key, float logit) {
             atomicAdd(&bin_count[BinOf(key)], 1u);
             bad |= IsBad(logit);
           });
  if (__syncthreads_or(bad) != 0 && threadIdx.x == 0) state.has_bad = 1;
  for (uint32_t i = threadIdx.x; i < kBins; i += kSliceThreads) {
    if (bin_count[i] != 0) atomicAdd(&state.bin_count[i], bin_count[i]);
  }
}

// The highest bin from which on there are `count` keys.
__device__ uint32_t LowestBin(const RowState& state, uint32_t count) {
  constexpr uint32_t kOwn = kBins / kSliceThreads;  // bins of a thread, thread 0 the highest
  __shared__ uint32_t warp_sum[kSliceThreads / 32];
  __shared__ uint32_t lowest;
  const uint32_t top = kBins - threadIdx.x * kOwn;
  uint32_t sum = 0;
  for (uint32_t i = 1; i <= kOwn; ++i) sum += state.bin_count[top - i];
  uint32_t through = sum;  // keys in the bins of this thread and of those before it
#pragma unroll
  for (uint32_t lanes = 1; lanes < 32; lanes *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, through, lanes);
    if (threadIdx.x % 32 >= lanes) through += other;
  }
  if (threadIdx.x % 32 == 31) warp_sum[threadIdx.x / 32] = through;
  __syncthreads();
  for (uint32_t warp = 0; warp < threadIdx.x / 32; ++warp) through += warp_sum[warp];
  if (through >= count && through - sum < count) {
    uint32_t before = through - sum;
    uint32_t bin = top;
    while (before < count) before += state.bin_count[--bin];
    lowest = bin;
  }
  __syncthreads();
  return lowest;
}

__global__ void __launch_bounds__(kSliceThreads)
    CollectKernel(const float* logits, uint32_t vocab_count, uint32_t count, RowState* states) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  RowState& state = states[blockIdx.y];
  const uint32_t lowest = LowestBin(state, count);
  ForSlice(logits + uint64_t{blockIdx.y} * vocab_count, vocab_count, [&](uint64_t key, float) {
    if (BinOf(key) < lowest) return;
    const uint32_t at = atomicAdd(&state.candidate_count, 1u);
    if (at < kCandidatesMax) state.candidate[at] = key;
  });
}

// The candidates of a row from the largest; one block for each row.
__global__ void __launch_bounds__(kSortThreads)
    SortKernel(const float* logits, uint32_t vocab_count, uint32_t count, RowState* states,
               TopLogit* top, uint32_t* exact) {
  __shared__ uint64_t key[kCandidatesMax];
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t row = blockIdx.x;
  RowState& state = states[row];
  const uint32_t found = state.candidate_count;
  const bool has_bad = state.has_bad != 0;
  const uint32_t kept = min(found, kCandidatesMax);
  uint32_t length = 32;
  while (length < kept) length *= 2;
  for (uint32_t i = threadIdx.x; i < length; i += kSortThreads) {
    key[i] = i < kept ? state.candidate[i] : 0;
  }
  __syncthreads();
  for (uint32_t run = 2; run <= length; run *= 2) {
    for (uint32_t step = run / 2; step != 0; step /= 2) {
      for (uint32_t i = threadIdx.x; i < length; i += kSortThreads) {
        const uint32_t other = i ^ step;
        if (other <= i) continue;
        const bool falls = (i & run) == 0;
        const uint64_t a = key[i], b = key[other];
        if (falls != (a < b)) continue;
        key[i] = b;
        key[other] = a;
      }
      __syncthreads();
    }
  }
  for (uint32_t i = threadIdx.x; i < count; i += kSortThreads) {
    const uint32_t token = min(TokenOf(key[i]), vocab_count - 1);
    top[uint64_t{row} * count + i] = {.logit = logits[uint64_t{row} * vocab_count + token],
                                      .token = static_cast<TokenId>(token)};
  }
  for (uint32_t i = threadIdx.x; i < kBins; i += kSortThreads) state.bin_count[i] = 0;
  if (threadIdx.x != 0) return;
  state.candidate_count = 0;
  state.has_bad = 0;
  const uint64_t least = KeyOf(__uint_as_float(0xFF800000u), 0);  // -inf
  exact[row] = !has_bad && found <= kCandidatesMax && kept >= count && key[0] > least ? 1 : 0;
}

absl::Status CheckArgs(const TopLogitsArgs& args) {
  const bool complete = args.logits != nullptr && args.top != nullptr && args.exact != nullptr &&
                        args.workspace != nullptr;
  if (complete && args.rows >= 1 && args.count >= 1 && args.count <= kTopLogitsMax &&
      args.count <= args.vocab_count) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("largest logits: ", args.count, " of ", args.vocab_count, " in ", args.rows,
                   complete ? " rows" : " rows, an array is missing", "; 1 to ", kTopLogitsMax,
                   " of at least as many, in at least one row"));
}

}  // namespace

uint64_t TopLogitsWorkspaceBytes(uint32_t rows) { return uint64_t{rows} * sizeof(RowState); }

absl::Status LaunchTopLogits(const TopLogitsArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckArgs(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  constexpr std::string_view kWhat = "launch for the largest logits";
  auto* const states = reinterpret_cast<RowState*>(args.workspace);
  const LaunchShape slices = {.blocks = {kSlices, args.rows}, .threads = kSliceThreads};
  if (args.count == 1) {
    HEARTH_RETURN_IF_ERROR(LaunchOverlapping(kWhat, BestKernel, slices, stream, args.logits,
                                             args.vocab_count, states));
  } else {
    HEARTH_RETURN_IF_ERROR(LaunchOverlapping(kWhat, CountKernel, slices, stream, args.logits,
                                             args.vocab_count, states));
    HEARTH_RETURN_IF_ERROR(LaunchOverlapping(kWhat, CollectKernel, slices, stream, args.logits,
                                             args.vocab_count, args.count, states));
  }
  return LaunchOverlapping(kWhat, SortKernel, {.blocks = args.rows, .threads = kSortThreads},
                           stream, args.logits, args.vocab_count, args.count, states, args.top,
                           args.exact);
}

}  // namespace hearth
