// The Viterbi search of one XT stream by one thread block, with the metrics and tie-breaks of
// pack/quant/xt_trellis.h. A row is 16 neighbouring states, the work of one thread at a time; two
// metrics lie in one register.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/xt_encode.h"
#include "pack/format/xt_search.h"

namespace hearth {

// Of one run, for which ways back are kept.
inline constexpr uint32_t kXtGpuRunSteps =
    kXtGpuStepsMax > 2 * kXtWrapSteps ? kXtGpuStepsMax : 2 * kXtWrapSteps;

template <int kBits>
struct XtTrellisShape;
template <>
struct XtTrellisShape<2> {
  static constexpr uint32_t kStateBits = 14, kPhases = 4, kThreads = 512, kBlocks = 2;
};
template <>
struct XtTrellisShape<3> {
  static constexpr uint32_t kStateBits = 15, kPhases = 8, kThreads = 1024, kBlocks = 1;
};
template <>
struct XtTrellisShape<4> {
  static constexpr uint32_t kStateBits = 14, kPhases = 2, kThreads = 512, kBlocks = 2;
};

struct XtSearchArgs {
  const float* targets = nullptr;  // (streams, kXtGpuStepsMax) level units
  const float* least = nullptr;    // same: least squared error of any level
  uint8_t* symbols = nullptr;      // same
  const float* level = nullptr;    // [phase][hash]
  const uint8_t* row_hash = nullptr;
  uint2* back = nullptr;  // (blocks, kXtGpuRunSteps, rows)
  uint32_t stream_count = 0;
  uint32_t group_count = 0;  // streams are [matrix][group][lane]
  uint32_t band_count = 0;   // of a matrix
  float units = 0;           // per squared level
  uint8_t dropped_hash[8][16] = {};
  uint8_t lane_hash[8][16] = {};
};

template <int kBits>
struct XtSearch {
  using Shape = XtTrellisShape<kBits>;
  static constexpr uint32_t kStates = 1u << Shape::kStateBits;
  static constexpr uint32_t kRows = kStates / 16;
  static constexpr uint32_t kBranches = 1u << kBits;
  static constexpr uint32_t kMask = kBranches - 1;
  static constexpr uint32_t kWarps = Shape::kThreads / 32;

  struct Shared {
    uint16_t metrics[2][kStates];
    uint4 spread[2][2][256];  // [step parity][lanes 0-7, 8-15][hash]: errors of 16 lanes
    uint16_t errors[2][256];
    uint16_t warp_least[2][32];
    uint8_t row_hash[Shape::kPhases * kRows];
    uint8_t symbols[kXtGpuStepsMax];
    uint32_t state;
  };

  Shared& shared;
  const XtSearchArgs& args;
  const float* targets;
  const float* least;
  uint2* back;
  uint32_t count;       // steps of the circle
  uint32_t newest = 0;  // of shared.metrics
  uint32_t floor = 0;   // least of the newest, low bits clear

  // State before the step, of the group of a state after it: what is dropped adds DroppedAt().
  static __device__ uint32_t Kept(uint32_t group) {
    if (kBits == 3) return (group & 0x1FF) | (group >> 9) << 11;
    return group;
  }
  static __device__ uint32_t DroppedAt(uint32_t dropped) {
    if (kBits == 2) return dropped << 12;
    if (kBits == 3) return (dropped & 3) << 9 | (dropped >> 2) << 14;
    return dropped << 10;
  }

  __device__ uint32_t At(uint32_t begin, uint32_t i) const {
    const uint32_t at = begin + i;
    return at < count ? at : (at < 2 * count ? at - count : at - 2 * count);
  }

  __device__ void FillErrors(uint32_t at, uint32_t buffer, float units) {
    if (threadIdx.x >= 256) return;
    const uint32_t phase = at % Shape::kPhases;
    const float difference = targets[at] - __ldg(args.level + phase * 256 + threadIdx.x);
    const float square = __fmul_rn(difference, difference);
    const float scaled = fminf(__fadd_rn(__fmul_rn(__fsub_rn(square, least[at]), units), 0.5f),
                               static_cast<float>(kXtErrorMax >> kBits));
    shared.errors[buffer][threadIdx.x] =
        static_cast<uint16_t>(static_cast<uint32_t>(static_cast<int32_t>(scaled)) << kBits);
  }

  // spread[hash][lane] = errors[hash ^ hash of lane]
  __device__ void Spread(uint32_t at, uint32_t buffer) {
    const uint32_t phase = at % Shape::kPhases;
    for (uint32_t i = threadIdx.x; i < 512; i += Shape::kThreads) {
      const uint32_t hash = i & 255;
      const uint32_t half = i >> 8;
      uint32_t words[4];
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w) {
        const uint32_t lane = half * 8 + w * 2;
        const uint32_t low = shared.errors[buffer][hash ^ args.lane_hash[phase][lane]];
        const uint32_t high = shared.errors[buffer][hash ^ args.lane_hash[phase][lane + 1]];
        words[w] = low | high << 16;
      }
      shared.spread[buffer][half][hash] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }

  // The metrics of the states before row `row` that drop `dropped`, for its 16 lanes: entry w of
  // `out` serves the lanes of words 8 * w / kPairs and on.
  static constexpr uint32_t kPairs = kBits == 2 ? 4 : (kBits == 3 ? 2 : 1);
  __device__ void Before(const uint16_t* from, uint32_t row, uint32_t dropped,
                         uint32_t (&out)[kPairs]) const {
    const uint16_t* at = from + Kept(row * 16 >> kBits) + DroppedAt(dropped);
    const uint32_t floors = floor * 0x00010001u;
    const uint32_t marks = dropped * 0x00010001u;
    constexpr uint32_t kKeep = ~(kMask * 0x00010001u);
    if constexpr (kBits == 4) {
      const uint32_t m = ((*at - floor) & ~kMask) | dropped;
      out[0] = m * 0x00010001u;
    } else if constexpr (kBits == 3) {
      const uint32_t pair = ((*reinterpret_cast<const uint32_t*>(at) - floors) & kKeep) | marks;
      out[0] = __byte_perm(pair, 0, 0x1010);
      out[1] = __byte_perm(pair, 0, 0x3232);
    } else {
      const uint2 pairs = *reinterpret_cast<const uint2*>(at);
      const uint32_t first = ((pairs.x - floors) & kKeep) | marks;
      const uint32_t second = ((pairs.y - floors) & kKeep) | marks;
      out[0] = __byte_perm(first, 0, 0x1010);
      out[1] = __byte_perm(first, 0, 0x3232);
      out[2] = __byte_perm(second, 0, 0x1010);
      out[3] = __byte_perm(second, 0, 0x3232);
    }
  }

  static __device__ uint2 PackDropped(const uint32_t (&best)[8]) {
    constexpr uint32_t kLow = kMask * 0x00010001u;
    uint2 packed = make_uint2(0, 0);
#pragma unroll
    for (uint32_t w = 0; w < 4; ++w) {
      packed.x |= (best[w] & kLow) << (4 * w);
      packed.y |= (best[w + 4] & kLow) << (4 * w);
    }
    return packed;
  }
  static __device__ uint32_t DroppedOf(uint2 packed, uint32_t lane) {
    const uint32_t word = lane < 8 ? packed.x : packed.y;
    return word >> (16 * (lane & 1) + 4 * (lane >> 1 & 3)) & kMask;
  }

  __device__ void Step(uint32_t phase, uint32_t buffer, uint2* back_row, uint32_t least_buffer) {
    const uint16_t* const from = shared.metrics[newest];
    uint16_t* const to = shared.metrics[newest ^ 1];
    const uint4* const low_half = shared.spread[buffer][0];
    const uint4* const high_half = shared.spread[buffer][1];
    uint32_t least_pair = 0xFFFFFFFFu;
    for (uint32_t row = threadIdx.x; row < kRows; row += Shape::kThreads) {
      uint32_t best[8];
#pragma unroll
      for (uint32_t w = 0; w < 8; ++w) best[w] = kXtMetricMax * 0x00010001u;
      const uint32_t row_hash = shared.row_hash[phase * kRows + row];
#pragma unroll
      for (uint32_t d = 0; d < kBranches; ++d) {
        const uint32_t hash = row_hash ^ args.dropped_hash[phase][d];
        const uint4 low = low_half[hash];
        const uint4 high = high_half[hash];
        uint32_t before[kPairs];
        Before(from, row, d, before);
        constexpr uint32_t kWords = 8 / kPairs;
        const uint32_t errors[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (uint32_t w = 0; w < 8; ++w) {
          best[w] = __viaddmin_u16x2(before[w / kWords], errors[w], best[w]);
        }
      }
      uint4* const out = reinterpret_cast<uint4*>(to + row * 16);
      out[0] = make_uint4(best[0], best[1], best[2], best[3]);
      out[1] = make_uint4(best[4], best[5], best[6], best[7]);
      back_row[row] = PackDropped(best);
#pragma unroll
      for (uint32_t w = 0; w < 8; ++w) least_pair = __vminu2(least_pair, best[w]);
    }
    const uint32_t warp_least =
        __reduce_min_sync(0xFFFFFFFFu, min(least_pair & 0xFFFF, least_pair >> 16));
    if (threadIdx.x % 32 == 0) {
      shared.warp_least[least_buffer][threadIdx.x / 32] = static_cast<uint16_t>(warp_least);
    }
  }

  __device__ void ReadFloor(uint32_t least_buffer) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t value = lane < kWarps ? shared.warp_least[least_buffer][lane] : 0xFFFFu;
    floor = __reduce_min_sync(0xFFFFFFFFu, value) & ~kMask;
  }

  // `start` is the state before the first step, or kStates for any.
  __device__ void Forward(uint32_t begin, uint32_t steps, uint32_t start, float units) {
    const uint32_t fill = start == kStates ? 0 : kXtMetricMax * 0x00010001u;
    uint32_t* const words = reinterpret_cast<uint32_t*>(shared.metrics[newest]);
    for (uint32_t i = threadIdx.x; i < kStates / 2; i += Shape::kThreads) words[i] = fill;
    FillErrors(At(begin, 0), 0, units);
    __syncthreads();
    if (threadIdx.x == 0 && start != kStates) shared.metrics[newest][start] = 0;
    Spread(At(begin, 0), 0);
    FillErrors(At(begin, 1), 1, units);
    floor = 0;
    __syncthreads();
    for (uint32_t i = 0; i < steps; ++i) {
      if (i > 0) ReadFloor((i - 1) & 1);
      if (i + 1 < steps) Spread(At(begin, i + 1), (i + 1) & 1);
      if (i + 2 < steps) FillErrors(At(begin, i + 2), i & 1, units);
      Step(At(begin, i) % Shape::kPhases, i & 1, back + size_t{i} * kRows, i & 1);
      newest ^= 1;
      __syncthreads();
    }
    ReadFloor((steps - 1) & 1);
  }

  // The first of the best states.
  __device__ uint32_t BestState() {
    if (threadIdx.x == 0) shared.state = kStates;
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < kStates; s += Shape::kThreads) {
      if ((shared.metrics[newest][s] & ~kMask) == floor) {
        atomicMin(&shared.state, s);
        break;
      }
    }
    __syncthreads();
    return shared.state;
  }

  // The state before step `to` on the way that ends in `state` after `steps` steps; the symbols on
  // it if `symbols` is given.
  __device__ uint32_t TraceBack(uint32_t steps, uint32_t to, uint32_t state, uint8_t* symbols) {
    __threadfence_block();
    __syncthreads();
    if (threadIdx.x == 0) {
      for (uint32_t i = steps; i-- > to;) {
        if (symbols != nullptr) symbols[i] = static_cast<uint8_t>(state & kMask);
        const uint2 packed = back[size_t{i} * kRows + state / 16];
        state = Kept(state >> kBits) + DroppedAt(DroppedOf(packed, state % 16));
      }
      shared.state = state;
    }
    __syncthreads();
    state = shared.state;
    __syncthreads();
    return state;
  }

  __device__ void Encode(uint8_t* symbols) {
    Forward(count - kXtWrapSteps, 2 * kXtWrapSteps, kStates, args.units);
    const uint32_t best = BestState();
    const uint32_t wrap = TraceBack(2 * kXtWrapSteps, kXtWrapSteps, best, nullptr);
    for (float units = args.units;; units = units > 1e-3f ? units / 4 : 0) {
      Forward(0, count, wrap, units);
      if (TraceBack(count, 0, wrap, shared.symbols) == wrap || units == 0) break;
    }
    for (uint32_t t = threadIdx.x; t < count; t += Shape::kThreads) symbols[t] = shared.symbols[t];
    __syncthreads();
  }
};

template <int kBits>
__global__ void __launch_bounds__(XtTrellisShape<kBits>::kThreads, XtTrellisShape<kBits>::kBlocks)
    XtSearchKernel(const __grid_constant__ XtSearchArgs args) {
  using Search = XtSearch<kBits>;
  extern __shared__ __align__(16) uint8_t memory[];
  auto& shared = *reinterpret_cast<typename Search::Shared*>(memory);
  constexpr uint32_t kHashes = XtTrellisShape<kBits>::kPhases * Search::kRows;
  for (uint32_t i = threadIdx.x; i < kHashes; i += blockDim.x)
    shared.row_hash[i] = args.row_hash[i];
  __syncthreads();
  constexpr size_t kBackRows = size_t{kXtGpuRunSteps} * Search::kRows;
  for (uint32_t stream = blockIdx.x; stream < args.stream_count; stream += gridDim.x) {
    const uint32_t group = stream / kXtLaneCount % args.group_count;
    const auto edge = [&](uint32_t g) {
      return static_cast<uint32_t>(uint64_t{args.band_count} * g / args.group_count);
    };
    const size_t first = size_t{stream} * kXtGpuStepsMax;
    Search search{.shared = shared,
                  .args = args,
                  .targets = args.targets + first,
                  .least = args.least + first,
                  .back = args.back + blockIdx.x * kBackRows,
                  .count = (edge(group + 1) - edge(group)) * kXtStepsPerChunk};
    search.Encode(args.symbols + first);
  }
}

}  // namespace hearth
