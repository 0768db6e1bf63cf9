// Scores of complete blocks: score = scale * (sum over heads of max(0, q_h . key)).
//
// Eight lanes share a key, four values of each 32 a lane, and hold four keys in registers for all
// rows of a tile; queries lie in shared memory. The four sums of a head are halved between the
// lanes step by step, so that one lane of two ends with one of them. The order of every sum is that
// of the lanes and the same for any number of rows.
#include <algorithm>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/attention/qsa_device.cuh"
#include "gpu_kernels/ops/attention/qsa_select.cuh"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kLanesPerKey = 8;
constexpr uint32_t kKeysPerLane = 4;
constexpr uint32_t kKeysPerWarp = kWarpLanes / kLanesPerKey * kKeysPerLane;
constexpr uint32_t kTileKeys = kThreads / kWarpLanes * kKeysPerWarp;
constexpr uint32_t kTileRowsMax = 8;
constexpr uint32_t kValuesPerChunk = 4 * kLanesPerKey;  // four values a lane
constexpr uint32_t kBlocksOfGrid = 528;                 // four for each multiprocessor of an H200

// What one block of threads computes: keys [key_begin, + kTileKeys) against up to kTileRowsMax
// rows.
struct Tile {
  uint32_t row_begin = 0;
  uint32_t row_end = 0;
  uint32_t key_begin = 0;
};

// Tiles of one segment: those of one tile of rows follow each other.
struct SegmentTiles {
  uint32_t row_begin = 0;  // of the rows that this launch scores
  uint32_t row_end = 0;
  uint32_t key_tiles = 0;  // for each tile of rows
  uint32_t count = 0;
};

__device__ SegmentTiles TilesOf(const QsaSelectKernelArgs& args, const GpuSegment& segment,
                                uint32_t tile_rows) {
  SegmentTiles tiles;
  tiles.row_begin = max(segment.row_begin, args.row_begin);
  tiles.row_end = min(segment.row_begin + segment.rows, args.row_end);
  if (tiles.row_begin >= tiles.row_end) return tiles;
  const uint32_t blocks = (segment.base + (tiles.row_end - segment.row_begin)) / args.block_tokens;
  if (blocks <= args.block_count_max) return tiles;
  tiles.key_tiles = (blocks + kTileKeys - 1) / kTileKeys;
  tiles.count = (tiles.row_end - tiles.row_begin + tile_rows - 1) / tile_rows * tiles.key_tiles;
  return tiles;
}

// kChunks * kValuesPerChunk >= dim.
template <int kChunks>
__device__ void StageQueries(const QsaSelectKernelArgs& args, const Tile& tile, float4* shared) {
  constexpr uint32_t kLines = kChunks * kLanesPerKey;  // of a head
  const uint32_t heads = args.indexer_head_count;
  const uint32_t dim_lines = args.indexer_head_dim / 4;
  const auto* from = reinterpret_cast<const float4*>(args.index);
  for (uint32_t i = threadIdx.x; i < (tile.row_end - tile.row_begin) * heads * kLines;
       i += kThreads) {
    const uint32_t line = i % kLines;
    const uint32_t head = i / kLines % heads;
    const uint32_t row = tile.row_begin + i / kLines / heads;
    shared[i] = line < dim_lines ? from[(size_t{row} * (heads + 1) + head) * dim_lines + line]
                                 : float4{0, 0, 0, 0};
  }
}

// Four sums over eight lanes; the lanes with bit 2 take the upper two, those with bit 1 the upper
// one of the rest. Returns sum (lane >> 1 & 3) in bit order (bit 2, bit 1).
__device__ inline float SumAcrossLanes(const float (&sums)[kKeysPerLane]) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const bool upper = (lane & 4) != 0;
  const float keep0 = upper ? sums[2] : sums[0];
  const float keep1 = upper ? sums[3] : sums[1];
  const float two0 = __fadd_rn(keep0, __shfl_xor_sync(kEveryLane, upper ? sums[0] : sums[2], 4));
  const float two1 = __fadd_rn(keep1, __shfl_xor_sync(kEveryLane, upper ? sums[1] : sums[3], 4));
  const bool second = (lane & 2) != 0;
  const float one =
      __fadd_rn(second ? two1 : two0, __shfl_xor_sync(kEveryLane, second ? two0 : two1, 2));
  return __fadd_rn(one, __shfl_xor_sync(kEveryLane, one, 1));
}

template <int kChunks>
struct Keys {
  float4 of[kKeysPerLane][kChunks];
};

template <int kChunks>
__device__ Keys<kChunks> LoadKeys(const QsaSelectKernelArgs& args, const float* block_keys,
                                  uint32_t first, uint32_t block_count) {
  Keys<kChunks> keys;
  const uint32_t lane = threadIdx.x % kLanesPerKey;
  const uint32_t dim_lines = args.indexer_head_dim / 4;
  const auto* from = reinterpret_cast<const float4*>(block_keys);
#pragma unroll
  for (uint32_t n = 0; n < kKeysPerLane; ++n) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint32_t line = c * kLanesPerKey + lane;
      keys.of[n][c] = first + n < block_count && line < dim_lines
                          ? from[size_t{first + n} * dim_lines + line]
                          : float4{0, 0, 0, 0};
    }
  }
  return keys;
}

template <int kChunks>
__device__ inline float DotsOfHead(const Keys<kChunks>& keys, const float4* q) {
  float sums[kKeysPerLane] = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const float4 x = q[c * kLanesPerKey];
#pragma unroll
    for (uint32_t n = 0; n < kKeysPerLane; ++n) {
      const float4 y = keys.of[n][c];
      sums[n] = __fmaf_rn(x.x, y.x, sums[n]);
      sums[n] = __fmaf_rn(x.y, y.y, sums[n]);
      sums[n] = __fmaf_rn(x.z, y.z, sums[n]);
      sums[n] = __fmaf_rn(x.w, y.w, sums[n]);
    }
  }
  return SumAcrossLanes(sums);
}

// The first of this lane's keys.
__device__ inline uint32_t FirstKey(const Tile& tile) {
  return tile.key_begin + threadIdx.x / kWarpLanes * kKeysPerWarp +
         threadIdx.x % kWarpLanes / kLanesPerKey * kKeysPerLane;
}

// Complete blocks of the tile's last row.
__device__ inline uint32_t BlocksOf(const QsaSelectKernelArgs& args, const GpuSegment& segment,
                                    const Tile& tile) {
  return (segment.base + (tile.row_end - segment.row_begin)) / args.block_tokens;
}

template <int kChunks>
__device__ void ScoreTile(const QsaSelectKernelArgs& args, const GpuSegment& segment,
                          const Tile& tile, const Keys<kChunks>& keys, const float4* shared) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first = FirstKey(tile);
  const uint32_t first_of_warp = first - lane / kLanesPerKey * kKeysPerLane;
  if (first_of_warp >= BlocksOf(args, segment, tile)) return;
  const uint32_t key = first + (lane & 4 ? 2 : 0) + (lane & 2 ? 1 : 0);
  const float4* q = shared + lane % kLanesPerKey;
  for (uint32_t row = tile.row_begin; row < tile.row_end; ++row) {
    float total = 0;
    for (uint32_t head = 0; head < args.indexer_head_count; ++head) {
      const float dot = DotsOfHead<kChunks>(keys, q);
      total = __fadd_rn(total, dot < 0 ? 0.0f : dot);
      q += kChunks * kLanesPerKey;
    }
    const uint32_t position = segment.base + (row - segment.row_begin);
    if ((lane & 1) == 0 && key < (position + 1) / args.block_tokens) {
      args.scores[size_t{row - args.row_begin} * args.score_stride + key] =
          __fmul_rn(total, args.scale);
    }
  }
}

// grid: (kBlocksOfGrid), of which each takes an equal run of all tiles of the launch.
template <int kChunks>
__global__ void __launch_bounds__(kThreads) QsaScoreKernel(const QsaSelectKernelArgs args) {
  extern __shared__ float4 shared[];  // (kTileRowsMax, heads, kChunks * kLanesPerKey)
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t segments = min(*args.pass.segment_count, kPassSegmentsMax);
  // Few keys: fewer rows a tile, so that every block of threads has one.
  uint32_t tile_rows = kTileRowsMax * 2;
  uint64_t total = 0;
  while (tile_rows > 1 && total < gridDim.x) {
    tile_rows /= 2;
    total = 0;
    for (uint32_t s = 0; s < segments; ++s) {
      total += TilesOf(args, args.pass.segments[s], tile_rows).count;
    }
    if (total == 0) return;
  }
  uint64_t from = total * blockIdx.x / gridDim.x;
  const uint64_t to = total * (blockIdx.x + 1) / gridDim.x;
  uint64_t segment_begin = 0;
  for (uint32_t s = 0; s < segments && from < to; ++s) {
    const GpuSegment segment = args.pass.segments[s];
    const SegmentTiles tiles = TilesOf(args, segment, tile_rows);
    const uint64_t segment_end = segment_begin + tiles.count;
    const float* const block_keys = segment.layers[args.layer].block_keys;
    uint32_t staged = UINT32_MAX;
    for (; from < min(to, segment_end); ++from) {
      const auto i = static_cast<uint32_t>(from - segment_begin);
      Tile tile;
      tile.row_begin = tiles.row_begin + i / tiles.key_tiles * tile_rows;
      tile.row_end = min(tile.row_begin + tile_rows, tiles.row_end);
      tile.key_begin = i % tiles.key_tiles * kTileKeys;
      const Keys<kChunks> keys =
          LoadKeys<kChunks>(args, block_keys, FirstKey(tile), BlocksOf(args, segment, tile));
      if (staged != tile.row_begin) {
        __syncthreads();
        StageQueries<kChunks>(args, tile, shared);
        __syncthreads();
        staged = tile.row_begin;
      }
      ScoreTile<kChunks>(args, segment, tile, keys, shared);
    }
    segment_begin = segment_end;
  }
}

}  // namespace

absl::Status EnqueueQsaScores(const QsaSelectKernelArgs& args, CudaStreamView stream) {
  const uint32_t chunks = (args.indexer_head_dim + kValuesPerChunk - 1) / kValuesPerChunk;
  const auto launch = [&](auto kernel, uint32_t kernel_chunks) {
    const uint32_t shared_bytes = kTileRowsMax * args.indexer_head_count * kernel_chunks *
                                  kLanesPerKey * static_cast<uint32_t>(sizeof(float4));
    return LaunchOverlapping(
        "launch of the scores of attention blocks", kernel,
        {.blocks = kBlocksOfGrid, .threads = kThreads, .shared_bytes = shared_bytes}, stream, args);
  };
  if (chunks == 1) return launch(QsaScoreKernel<1>, 1);
  return launch(QsaScoreKernel<4>, 4);
}

}  // namespace hearth
