// Q8 bands times quantised rows of x, on tensor cores: one product of 16 weight rows by 8 rows of x
// covers a block of 32 columns, so one row of x costs what eight do. Included by dense_matmul.cu.
//
// Lane (g, c) reads the rows 2g and 2g + 1 of the steps c and c + 4 of each block: a warp's load is
// 256 bytes in a piece. A warp keeps the eight blocks of a chunk in registers: as soon as one is
// used, the same block of the warp's next chunk is asked for, which may belong to the next band.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>

#include "gpu_kernels/ops/dense/dense_kernel.cuh"
#include "gpu_kernels/ops/dense/mma.cuh"

namespace hearth {

inline constexpr uint32_t kChunkBlocks = kMatmulChunkCols / kQ8BlockValues;
inline constexpr uint32_t kBlockCodeBytes = kBandRows * kQ8BlockValues;
inline constexpr uint32_t kBlockScaleBytes = kBandRows * 2;
inline constexpr uint32_t kBlocksPerScaleLoad = 4;

// Rows of x in shared memory.
struct StagedRows {
  uint2* q;      // [block][row][c]: the four values of steps c and c + 4
  float* scale;  // [block][8 or 16], zero beyond the rows
};

template <int kGroups>
__device__ StagedRows StageRows(const MatmulKernelArgs& args, uint4* shared) {
  constexpr uint32_t kPaddedRows = kGroups * kTensorRows;
  const uint32_t blocks = args.cols / kQ8BlockValues;
  const auto* from = reinterpret_cast<const uint4*>(args.x.q);
  for (uint32_t i = threadIdx.x; i < blocks * args.rows; i += blockDim.x) {
    const uint32_t block = i / args.rows;
    const uint32_t row = i % args.rows;
    const uint4* line = from + (size_t{row} * blocks + block) * 2;
    const uint4 low = line[0];
    const uint4 high = line[1];
    shared[2 * i] = {low.x, high.x, low.y, high.y};
    shared[2 * i + 1] = {low.z, high.z, low.w, high.w};
  }
  auto* scale = reinterpret_cast<float*>(shared + size_t{blocks} * args.rows * 2);
  for (uint32_t i = threadIdx.x; i < blocks * kPaddedRows; i += blockDim.x) {
    const uint32_t block = i / kPaddedRows;
    const uint32_t row = i % kPaddedRows;
    scale[i] = row < args.rows ? args.x.scale[size_t{row} * blocks + block] : 0.0f;
  }
  return {reinterpret_cast<uint2*>(shared), scale};
}

// Where a warp stands in its bands: a chunk of the band `unit`.
struct BandCursor {
  uint32_t unit;
  uint32_t chunk;
  uint32_t blocks_left = 0;          // of the band, from the chunk on; 0: there are no more bands
  const std::byte* codes = nullptr;  // of the lane, at the chunk
  const std::byte* scales = nullptr;

  __device__ BandCursor(const MatmulKernelArgs& args, const TeamPlace& place)
      : unit(blockIdx.x * args.teams + place.team), chunk(place.segment) {
    Find(args, place);
  }
  __device__ void Find(const MatmulKernelArgs& args, const TeamPlace& place) {
    blocks_left = 0;
    if (unit >= args.band_count) return;
    const KernelOutput& output =
        args.outputs[OutputOf(args.outputs, 0, args.q8_output_count, unit)];
    const uint32_t blocks = args.cols / kQ8BlockValues;
    const uint32_t g = place.lane / 4;
    const uint32_t c = place.lane % 4;
    const std::byte* band =
        output.w + size_t{unit - output.first_unit} * blocks * (kBlockCodeBytes + kBlockScaleBytes);
    const uint32_t first = chunk * kChunkBlocks;
    codes = band + first * kBlockCodeBytes + c * 64 + g * 8;
    scales = band + (blocks * kBlockCodeBytes + (first + c) * kBlockScaleBytes + g * 4);
    blocks_left = blocks - first;
  }
  __device__ void Advance(const MatmulKernelArgs& args, const TeamPlace& place) {
    if (blocks_left > args.segments * kChunkBlocks) {
      blocks_left -= args.segments * kChunkBlocks;
      codes += args.segments * kChunkBlocks * kBlockCodeBytes;
      scales += args.segments * kChunkBlocks * kBlockScaleBytes;
      return;
    }
    chunk = place.segment;
    unit += gridDim.x * args.teams;
    Find(args, place);
  }
};

// The lane's share of a chunk.
struct ChunkWeights {
  uint2 low[kChunkBlocks];                              // step c: rows 2g, 2g + 1
  uint2 high[kChunkBlocks];                             // step c + 4
  uint32_t scales[kChunkBlocks / kBlocksPerScaleLoad];  // of block 4i + c, fp16: rows 2g, 2g + 1

  __device__ void LoadBlock(const BandCursor& at, uint32_t i) {
    if (i >= at.blocks_left) return;
    low[i] = LoadOnce8(at.codes + i * kBlockCodeBytes);
    high[i] = LoadOnce8(at.codes + i * kBlockCodeBytes + kBlockCodeBytes / 2);
  }
  __device__ void LoadScales(const BandCursor& at, uint32_t i, uint32_t c) {
    if (i * kBlocksPerScaleLoad + c >= at.blocks_left) return;
    scales[i] = LoadOnce4(at.scales + i * kBlocksPerScaleLoad * kBlockScaleBytes);
  }
};

template <int kGroups>
struct BandSums {
  float of[kGroups][4];  // rows of w and of x: (2g, 2c), (2g, 2c + 1), (2g + 1, 2c), ...
};

// Block i of a chunk, block `block` of the band.
template <int kGroups>
__device__ inline void AddBlock(const ChunkWeights& w, uint32_t i, const StagedRows& x,
                                uint32_t block, uint32_t rows, uint32_t lane,
                                BandSums<kGroups>* sums) {
  constexpr uint32_t kSignFlips = 0x80808080u;  // value + 128 becomes a signed value
  constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
  const uint32_t g = lane / 4;
  const uint32_t c = lane % 4;
  const uint32_t a[4] = {w.low[i].x ^ kSignFlips, w.low[i].y ^ kSignFlips, w.high[i].x ^ kSignFlips,
                         w.high[i].y ^ kSignFlips};
  const uint32_t scale_bits = __shfl_sync(kAllLanes, w.scales[i / kBlocksPerScaleLoad],
                                          (lane & ~3u) + i % kBlocksPerScaleLoad);
  const float2 w_scale = __half22float2(*reinterpret_cast<const __half2*>(&scale_bits));
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const uint32_t row = group * kTensorRows + g;
    uint2 b = {0, 0};
    if (row < rows) b = x.q[(block * rows + row) * 4 + c];
    const float2 x_scale =
        *reinterpret_cast<const float2*>(x.scale + (block * kGroups + group) * kTensorRows + 2 * c);
    int32_t d[4];
    MultiplyInt8(a, b.x, b.y, d);
    float(&sum)[4] = sums->of[group];
    sum[0] = __fmaf_rn(__fmul_rn(w_scale.x, x_scale.x), ExactFloat(d[0]), sum[0]);
    sum[1] = __fmaf_rn(__fmul_rn(w_scale.x, x_scale.y), ExactFloat(d[1]), sum[1]);
    sum[2] = __fmaf_rn(__fmul_rn(w_scale.y, x_scale.x), ExactFloat(d[2]), sum[2]);
    sum[3] = __fmaf_rn(__fmul_rn(w_scale.y, x_scale.y), ExactFloat(d[3]), sum[3]);
  }
}

__device__ inline void WriteOutput(const KernelOutput& output, uint32_t row_of_w, uint32_t row_of_x,
                                   float v) {
  if (row_of_w >= output.rows) return;
  output.y[size_t{row_of_x} * output.y_stride + row_of_w] = Activate(output, v);
}

// One segment is the whole sum: from registers.
template <int kGroups>
__device__ void WriteSums(const MatmulKernelArgs& args, const KernelOutput& output, uint32_t band,
                          uint32_t lane, const BandSums<kGroups>& sums) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t t = group * kTensorRows + lane % 4 * 2 + i % 2;
      if (t < args.rows) {
        WriteOutput(output, band * kBandRows + lane / 4 * 2 + i / 2, t, sums.of[group][i]);
      }
    }
  }
}

// [row of x][16]
template <int kGroups>
__device__ void StoreSums(const MatmulKernelArgs& args, uint32_t lane,
                          const BandSums<kGroups>& sums, float* to) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t t = group * kTensorRows + lane % 4 * 2 + i;
      if (t < args.rows) {
        *reinterpret_cast<float2*>(to + t * kBandRows + lane / 4 * 2) = {sums.of[group][i],
                                                                         sums.of[group][i + 2]};
      }
    }
  }
}

// All bands of this block of threads.
template <int kGroups>
__device__ void BandProducts(const MatmulKernelArgs& args, const TeamPlace& place, uint4* shared,
                             SegmentSums* segment_sums) {
  const uint32_t blocks = args.cols / kQ8BlockValues;
  BandCursor ahead(args, place);
  ChunkWeights w = {};
#pragma unroll
  for (uint32_t i = 0; i < kChunkBlocks / kBlocksPerScaleLoad; ++i) {
    w.LoadScales(ahead, i, place.lane % 4);
  }
#pragma unroll
  for (uint32_t i = 0; i < kChunkBlocks; ++i) w.LoadBlock(ahead, i);
  const StagedRows x = StageRows<kGroups>(args, shared);
  __syncthreads();

  for (uint32_t first = blockIdx.x * args.teams; first < args.band_count;
       first += gridDim.x * args.teams) {
    const uint32_t unit = first + place.team;
    const bool has_unit = unit < args.band_count;
    BandSums<kGroups> sums = {};
    for (uint32_t block = place.segment * kChunkBlocks; has_unit && block < blocks;
         block += args.segments * kChunkBlocks) {
      ahead.Advance(args, place);
#pragma unroll
      for (uint32_t i = 0; i < kChunkBlocks; ++i) {
        if (block + i < blocks) {
          AddBlock<kGroups>(w, i, x, block + i, args.rows, place.lane, &sums);
        }
        w.LoadBlock(ahead, i);
        if (i % kBlocksPerScaleLoad == kBlocksPerScaleLoad - 1) {
          w.LoadScales(ahead, i / kBlocksPerScaleLoad, place.lane % 4);
        }
      }
    }
    const KernelOutput& output =
        args.outputs[OutputOf(args.outputs, 0, args.q8_output_count, unit)];
    const uint32_t band = unit - output.first_unit;
    if (args.segments == 1) {
      if (has_unit) WriteSums<kGroups>(args, output, band, place.lane, sums);
      continue;
    }
    if (has_unit) {
      StoreSums<kGroups>(args, place.lane, sums, segment_sums->Of(args, place.team, place.segment));
    }
    __syncthreads();
    const float* stored = segment_sums->Of(args, place.team, 0);
    for (uint32_t job = place.segment * 32 + place.lane; has_unit && job < args.rows * kBandRows;
         job += args.segments * 32) {
      float total = stored[job];
      for (uint32_t s = 1; s < args.segments; ++s) {
        total = __fadd_rn(total, stored[s * segment_sums->unit_values + job]);
      }
      WriteOutput(output, band * kBandRows + job % kBandRows, job / kBandRows, total);
    }
    segment_sums->parity ^= 1;
  }
}

}  // namespace hearth
