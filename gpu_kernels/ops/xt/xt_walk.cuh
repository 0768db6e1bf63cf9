// Kernel of gpu_kernels/ops/xt/xt_walk.h, for every architecture with dp4a.
#pragma once

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/xt/xt_decode.cuh"
#include "gpu_kernels/ops/xt/xt_walk.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr int kXtAhead = 2;

// Consecutive bands of one pair of blocks.
struct XtWalk {
  uint32_t item_index;
  uint32_t projection;
  uint32_t pair;
  uint32_t group_begin;  // band
  uint32_t group_bands;
  uint32_t first;  // in the group
  uint32_t count;
};

// The walk that begins with step `step` of an item and has at most `left` steps.
__device__ inline XtWalk XtWalkOf(const XtWalkArgs& args, uint32_t item_index, uint32_t step,
                                  uint32_t left) {
  XtWalk walk;
  walk.item_index = item_index;
  const uint32_t projection_steps = args.pair_count * args.band_count;
  walk.projection = step / projection_steps;
  step -= walk.projection * projection_steps;
  uint32_t group = 0;
  uint32_t begin = 0;
  uint32_t end = args.band_count / args.group_count;
  while (step >= end * args.pair_count) {
    ++group;
    begin = end;
    end = args.band_count * (group + 1) / args.group_count;
  }
  step -= begin * args.pair_count;
  walk.group_begin = begin;
  walk.group_bands = end - begin;
  walk.pair = step / walk.group_bands;
  walk.first = step % walk.group_bands;
  walk.count = min(left, walk.group_bands - walk.first);
  return walk;
}

// q of this lane's block for kRows rows of x, bytes in the order in which a stream is decoded:
// word[t][w][j] has stream j's columns of word w.
template <uint32_t kBits, int kRows>
struct XtActivations {
  uint32_t word[kRows][2][4];

  __device__ void Load(const XtWalkArgs& args, const ExpertFfnItem& item, uint32_t rows,
                       uint32_t block) {
    constexpr uint32_t kPick[2][2] = {{0x5140u, 0x7362u}, {0x5410u, 0x7632u}};
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      uint4 plain[2] = {};
      if (t < rows && block < args.block_count) {
        const uint32_t entry = item.entry_begin + t;
        const size_t row = args.rows_are_entries ? entry : args.entries[entry].x_row;
        const auto* from = reinterpret_cast<const uint4*>(args.q + row * args.cols) + block * 2;
        plain[0] = from[0];
        plain[1] = from[1];
      }
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        // Steps 4w + 0, 1, 2, 3 hold columns j = 0..3 in their bytes: transposed, in step order.
        const uint32_t s0 = plain[w].x;
        const uint32_t s1 = kBits == 4 ? plain[w].y : plain[w].z;
        const uint32_t s2 = kBits == 4 ? plain[w].z : plain[w].y;
        const uint32_t s3 = plain[w].w;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t a = PermuteBytes(s0, s1, kPick[0][half]);  // s0.j s1.j s0.j+1 s1.j+1
          const uint32_t b = PermuteBytes(s2, s3, kPick[0][half]);
          word[t][w][2 * half] = PermuteBytes(a, b, kPick[1][0]);
          word[t][w][2 * half + 1] = PermuteBytes(a, b, kPick[1][1]);
        }
      }
    }
  }
};

template <uint32_t kBits>
struct XtLines {
  uint32_t line[kBits];
  __device__ void Load(const std::byte* chunk) {
#pragma unroll
    for (uint32_t l = 0; l < kBits; ++l) {
      asm("ld.global.nc.L2::256B.u32 %0, [%1];" : "=r"(line[l]) : "l"(chunk + l * kXtLaneCount));
    }
  }
};

// Levels + kXtLevelOffset of the word's four steps, for all rows of x.
template <uint32_t kBits, XtDecodeKind kKind, int kWord>
__device__ inline int32_t XtLevelsOf(const XtLaneAddresses& lane, const XtSplitTables& split,
                                     uint32_t word) {
  if constexpr (kXtIsSplit<kKind, kWord>) {
    return static_cast<int32_t>(XtLookUpSplit(split, word).Sum());
  } else {
    // 256 that the compiler does not see: multiply-adds, whose units have time, instead of
    // permutations.
    uint32_t step = 256;
    asm("" : "+r"(step));
    const uint32_t low = XtLookUpLevel<1>(lane, word) * step + XtLookUpLevel<0>(lane, word);
    const uint32_t high = XtLookUpLevel<3>(lane, word) * step + XtLookUpLevel<2>(lane, word);
    return static_cast<int32_t>(high * (step * step) + low);
  }
}

// Adds the dots of stream j's word to sums.
template <uint32_t kBits, XtDecodeKind kKind, int kRows, int kWord>
__device__ inline void XtDotWord(const XtLaneAddresses& lane, const XtSplitTables& split,
                                 uint32_t word, const XtActivations<kBits, kRows>& x, int j,
                                 int32_t (&sums)[kRows]) {
  if constexpr (kRows == 1 && kXtIsSplit<kKind, kWord>) {
    // One row: dot products add the parts up, beside the units that permute.
    const XtSplitLevels levels = XtLookUpSplit(split, word);
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      sums[0] = __dp4a(static_cast<int32_t>(levels.part[i]),
                       static_cast<int32_t>(x.word[0][kWord][j]), sums[0]);
    }
  } else {
    const int32_t levels = XtLevelsOf<kBits, kKind, kWord>(lane, split, word);
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      sums[t] = __dp4a(levels, static_cast<int32_t>(x.word[t][kWord][j]), sums[t]);
    }
  }
}

// Adds to memory where `wanted`; without the branches that the compiler would make of it.
__device__ inline void XtAddWhere(bool wanted, int32_t* to, int32_t value) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p red.relaxed.gpu.global.add.s32 [%0], %1; }"
               :
               : "l"(to), "r"(value), "r"(static_cast<uint32_t>(wanted))
               : "memory");
}

// What this half of the warp adds to memory: the low half the warp's total of `low`, the high half
// that of `high`.
__device__ inline int32_t XtAddHalves(int32_t low, int32_t high) {
  const bool is_high = threadIdx.x % 32 >= 16;
  return (is_high ? high : low) + __shfl_xor_sync(kAllLanes, is_high ? low : high, 16);
}

// The sums of one band, at `to` for row 0 of x: the low half takes the even rows, the high half the
// odd ones.
template <int kRows>
__device__ inline void XtAddBand(const int32_t (&sums)[kRows], int32_t* to, uint32_t stride,
                                 uint32_t rows) {
  const uint32_t high = threadIdx.x % 32 / 16;
  if constexpr (kRows == 1) {
    const int32_t total = XtAddHalves(sums[0], 0);
    XtAddWhere(high == 0, to, total);
  } else {
#pragma unroll
    for (int t = 0; t < kRows; t += 2) {
      const int32_t total = XtAddHalves(sums[t], sums[t + 1]);
      // The class below holds all but the last half of the rows.
      XtAddWhere(t + 1 < kRows / 2 || t + high < rows, to + (t + high) * stride, total);
    }
  }
}

// The same of two bands, one after the other; at one row each half of the warp takes a band.
template <int kRows>
__device__ inline void XtAddBands(const int32_t (&first)[kRows], const int32_t (&second)[kRows],
                                  int32_t* to, uint32_t stride, uint32_t rows) {
  if constexpr (kRows == 1) {
    const uint32_t high = threadIdx.x % 32 / 16;
    const int32_t total = XtAddHalves(first[0], second[0]);
    XtAddWhere(true, to + high * kBandRows, total);
  } else {
    XtAddBand<kRows>(first, to, stride, rows);
    XtAddBand<kRows>(second, to + kBandRows, stride, rows);
  }
}

// A lane's part of a walk: its rows of one block of each band, one band after the other.
template <uint32_t kBits, XtDecodeKind kKind, int kRows>
struct XtLaneWalk {
  static constexpr uint32_t kChunkBytes = kXtLaneCount * kBits;

  const XtLaneAddresses& addresses;
  const XtSplitTables& split;
  const XtActivations<kBits, kRows>& x;
  const std::byte* chunk;  // the next that is asked for
  uint32_t chunks_left;    // after it, in the walk
  XtLines<kBits> ahead[kXtAhead];
  XtCarry<kBits> carry;

  // Asks for chunks kXtAhead steps early. After the walk's last one the same lines come again.
  __device__ void Ask(XtLines<kBits>* lines) {
    lines->Load(chunk);
    if (chunks_left > 0) chunk += kChunkBytes;
    chunks_left -= chunks_left > 0 ? 1 : 0;
  }
  __device__ void DotBand(int32_t (&sums)[kRows]) {
    const XtLines<kBits> now = ahead[0];
#pragma unroll
    for (int i = 0; i + 1 < kXtAhead; ++i) ahead[i] = ahead[i + 1];
    Ask(&ahead[kXtAhead - 1]);
    uint32_t word0[4];
    uint32_t word1[4];
    XtHash<kBits, kKind>::Words(addresses, now.line, &carry, word0, word1);
    int32_t more[kRows] = {};  // two chains of sums
#pragma unroll
    for (int t = 0; t < kRows; ++t) sums[t] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      XtDotWord<kBits, kKind, kRows, 0>(addresses, split, word0[j], x, j, sums);
      XtDotWord<kBits, kKind, kRows, 1>(addresses, split, word1[j], x, j, more);
    }
#pragma unroll
    for (int t = 0; t < kRows; ++t) sums[t] += more[t];
  }
};

// Row scales that a later launch wants come into the second cache meanwhile: by the walks of the
// first pair of blocks, each for its bands.
__device__ inline void XtPrefetchScales(const XtWalkArgs& args, const ExpertFfnItem& item,
                                        const XtWalk& walk) {
  constexpr uint32_t kLineBytes = 128;
  const uint32_t lane = threadIdx.x % 32;
  if (walk.pair != 0 || lane * kLineBytes >= walk.count * kBandRows * 2 + kLineBytes) return;
  const uint32_t first_row = (walk.group_begin + walk.first) * kBandRows;
  const uint32_t row = min(first_row + lane * (kLineBytes / 2), args.rows - 1);
  const std::byte* at = item.blob + args.scale_offset_bytes[walk.projection] + row * 2;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

template <uint32_t kBits, XtDecodeKind kKind, int kRows>
__device__ void XtRun(const XtWalkArgs& args, const ExpertFfnItem& item, const XtWalk& walk,
                      uint32_t rows, const XtLaneAddresses& addresses, const XtSplitTables& split) {
  constexpr uint32_t kChunkBytes = kXtLaneCount * kBits;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t block = walk.pair * 2 + lane / 16;
  // A block beyond the last reads the last one's weights, times zeros.
  const uint32_t weights_block = min(block, args.block_count - 1);
  const std::byte* circle =
      item.blob + args.code_offset_bytes[walk.projection] +
      (uint64_t{walk.group_begin} * args.block_count + uint64_t{weights_block} * walk.group_bands) *
          kChunkBytes +
      lane % 16 * 4;
  const uint32_t before = (walk.first == 0 ? walk.group_bands : walk.first) - 1;
  XtLines<kBits> last;
  last.Load(circle + before * kChunkBytes);
  XtActivations<kBits, kRows> x;
  XtLaneWalk<kBits, kKind, kRows> lane_walk = {addresses, split, x,
                                               circle + walk.first * kChunkBytes, walk.count - 1};
#pragma unroll
  for (int i = 0; i < kXtAhead; ++i) lane_walk.Ask(&lane_walk.ahead[i]);
  x.Load(args, item, rows, block);
  XtPrefetchScales(args, item, walk);
  {
    uint32_t unused0[4];
    uint32_t unused1[4];
    XtHash<kBits, kKind>::Words(addresses, last.line, &lane_walk.carry, unused0, unused1);
  }
  int32_t* to = args.sums + uint64_t{item.entry_begin} * args.sum_stride +
                walk.projection * args.sum_projection_stride +
                (walk.group_begin + walk.first) * kBandRows + lane % 16;
  for (uint32_t pairs_left = walk.count / 2; pairs_left > 0; --pairs_left) {
    int32_t first[kRows];
    int32_t second[kRows];
    lane_walk.DotBand(first);
    lane_walk.DotBand(second);
    XtAddBands<kRows>(first, second, to, args.sum_stride, rows);
    to += 2 * kBandRows;
  }
  if (walk.count % 2 != 0) {
    int32_t only[kRows];
    lane_walk.DotBand(only);
    XtAddBand<kRows>(only, to, args.sum_stride, rows);
  }
}

// The smallest class of rows that holds this item's.
template <uint32_t kBits, XtDecodeKind kKind, int kRows, int kRowsMax>
__device__ inline void XtChooseRows(const XtWalkArgs& args, const ExpertFfnItem& item,
                                    const XtWalk& walk, uint32_t rows,
                                    const XtLaneAddresses& addresses, const XtSplitTables& split) {
  if constexpr (kRows < kRowsMax) {
    if (rows > kRows) {
      XtChooseRows<kBits, kKind, kRows * 2, kRowsMax>(args, item, walk, rows, addresses, split);
      return;
    }
  }
  XtRun<kBits, kKind, kRows>(args, item, walk, rows, addresses, split);
}

// Fewer rows need fewer registers, so that more warps hide each other's latencies.
constexpr uint32_t XtThreads(int rows_max) { return rows_max > 4 ? 512 : 640; }

template <uint32_t kBits, XtDecodeKind kKind, int kRowsMax>
__global__ void __launch_bounds__(XtThreads(kRowsMax), 1)
    XtWalkKernel(const __grid_constant__ XtWalkArgs args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const auto start = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  uint8_t* tables = shared;
  if constexpr (kKind != XtDecodeKind::kSplit) tables += -start % kXtRegionBytes;
  XtFillTables(args.tables, kKind != XtDecodeKind::kSplit, tables);
  XtSplitTables split;
#pragma unroll
  for (int t = 0; t < 3; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) split.word[t][i] = args.tables.split[t][i];
  }
  __syncthreads();
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t item_count = XtItemCount(args.item_count, args.item_count_max);
  const uint32_t item_steps = args.projection_count * args.pair_count * args.band_count;
  const uint64_t steps = uint64_t{item_count} * item_steps;
  const uint32_t warps_per_block = blockDim.x / 32;
  const uint32_t warps = gridDim.x * warps_per_block;
  const uint32_t warp = blockIdx.x * warps_per_block + threadIdx.x / 32;
  const XtLaneAddresses addresses(static_cast<uint32_t>(__cvta_generic_to_shared(tables)),
                                  threadIdx.x % 32);
  auto step = static_cast<uint32_t>(steps * warp / warps);
  const auto end = static_cast<uint32_t>(steps * (warp + 1) / warps);
  while (step < end) {
    const uint32_t item_index = step / item_steps;
    const uint32_t in_item = step % item_steps;
    const ExpertFfnItem item = args.items[item_index];
    const XtWalk walk = XtWalkOf(args, item_index, in_item, end - step);
    // The host promises entry_count <= rows_max; a broken promise must not leave the arrays.
    const uint32_t rows = min(item.entry_count, args.rows_max);
    XtChooseRows<kBits, kKind, 1, kRowsMax>(args, item, walk, rows, addresses, split);
    step += walk.count;
  }
}

template <uint32_t kBits, XtDecodeKind kKind, int kRowsMax>
absl::Status EnqueueXtKernel(const XtWalkArgs& args, uint32_t blocks, CudaStreamView stream) {
  constexpr uint32_t kSharedBytes = XtSharedBytes(kKind);
  const auto kernel = XtWalkKernel<kBits, kKind, kRowsMax>;
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      absl::StrCat("XT kernel with ", kSharedBytes, " bytes of shared memory").c_str()));
  return LaunchOverlapping(
      "XT kernel", kernel,
      {.blocks = dim3(blocks), .threads = dim3(XtThreads(kRowsMax)), .shared_bytes = kSharedBytes},
      stream, args);
}

template <uint32_t kBits, XtDecodeKind kKind>
absl::Status EnqueueXtKind(const XtWalkArgs& args, uint32_t blocks, CudaStreamView stream) {
  return args.rows_max > 4 ? EnqueueXtKernel<kBits, kKind, kExpertRowsMax>(args, blocks, stream)
                           : EnqueueXtKernel<kBits, kKind, 4>(args, blocks, stream);
}

template <uint32_t kBits>
absl::Status EnqueueXtBits(const XtWalkArgs& args, XtDecodeKind kind, uint32_t blocks,
                           CudaStreamView stream) {
  switch (kind) {
    case XtDecodeKind::kSplit:
      return EnqueueXtKind<kBits, XtDecodeKind::kSplit>(args, blocks, stream);
    case XtDecodeKind::kHalfLevels:
      return EnqueueXtKind<kBits, XtDecodeKind::kHalfLevels>(args, blocks, stream);
    case XtDecodeKind::kLevels:
      return EnqueueXtKind<kBits, XtDecodeKind::kLevels>(args, blocks, stream);
  }
  HEARTH_CHECK(false);
}

}  // namespace
}  // namespace hearth
