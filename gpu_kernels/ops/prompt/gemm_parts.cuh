// What the two kinds of prompt products (expert_gemm.cu, expert_warpgroup.cu) have in common around
// their multiplications: copies into shared memory, rows of x, totals, and the rows that they
// leave.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/common/async_copy.cuh"
#include "gpu_kernels/ops/prompt/gemm_args.h"
#include "gpu_kernels/ops/prompt/gemm_tile.cuh"

namespace hearth {

// `bytes`: 16, or 0 for zeros.
__device__ inline void CopyAsync16(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(bytes));
}
__device__ inline void CopyAsync4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(to)), "l"(from));
}

// The row of x of a tile's column. Columns beyond the tile's are its last one again: nobody reads
// what becomes of them.
__device__ inline size_t RowOfColumn(const GemmKernelArgs& args, const ExpertGemmTile& tile,
                                     uint32_t column) {
  const uint32_t entry = tile.entry_begin + min(column, tile.columns - 1);
  return args.gathers ? args.entries[entry].x_row : entry;
}

// The total of a row of all bands and a column of the tile, out of shared.totals: (bands, tiles,
// lanes).
template <class Shared>
__device__ inline float TotalOf(const Shared& shared, uint32_t row, uint32_t column) {
  const float4& total = shared.totals[row / kBandRows][column / 8][row % 8 * 4 + column % 8 / 2];
  return reinterpret_cast<const float*>(&total)[row % kBandRows / 8 * 2 + column % 2];
}

// The multipliers of gate, up and down follow each other.
__device__ inline float MultiplierOf(const GemmKernelArgs& args, const std::byte* blob, int index) {
  return reinterpret_cast<const float*>(blob + args.multiplier_offset_bytes)[index];
}

// h out of the totals of kGateBands bands of gate and then as many of up, quantised: by kWarps
// warps, which all call when the totals are there. `position`: where a value of a block stands.
template <uint32_t kGateBands, uint32_t kWarps, class Shared, class Position>
__device__ inline void StoreHidden(const GemmKernelArgs& args, const ExpertGemmTile& tile,
                                   const std::byte* blob, const Shared& shared,
                                   const Position& position) {
  const float gate_multiplier = MultiplierOf(args, blob, 0);
  const float up_multiplier = MultiplierOf(args, blob, 1);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t h_blocks = (args.band_count + 1) / 2;
  constexpr uint32_t kBlocks = kGateBands / 2;  // of 32 values of h
  for (uint32_t job = threadIdx.x / 32; job < tile.columns * kBlocks; job += kWarps) {
    const uint32_t column = job / kBlocks;
    const uint32_t row = job % kBlocks * 32 + lane;
    const bool valid = blockIdx.x * kGateBands + row / kBandRows < args.band_count;
    const float gate = __fmul_rn(TotalOf(shared, row, column), gate_multiplier);
    const float up =
        __fmul_rn(TotalOf(shared, row + kGateBands * kBandRows, column), up_multiplier);
    const QuantizedLane quantized = QuantizeLane(__fmul_rn(SiluOf(gate), up), valid);
    const uint32_t h_block = blockIdx.x * kBlocks + job % kBlocks;
    if (h_block >= h_blocks) continue;  // the same for the whole warp
    const size_t at = size_t{tile.entry_begin + column} * args.h.pitch_blocks + h_block;
    reinterpret_cast<__half*>(args.h.values + at * kGemmBlockValues * 2)[position(lane)] =
        __int2half_rn(quantized.q);
    if (lane == 0) args.h.scale[at] = __fmul_rn(quantized.scale, kGemmScaleFactor);
  }
}

// int8 rows to fp16 in the order of the products, one warp a block. grid: (rows, groups of kWarps
// blocks).
template <uint32_t kWarps, class Position>
__device__ inline void StoreRows(const HalfRows& x, const int8_t* q, const float* scale,
                                 uint32_t blocks, const Position& position) {
  const uint32_t block = blockIdx.y * kWarps + threadIdx.x / 32;
  if (block >= blocks) return;
  const uint32_t lane = threadIdx.x % 32;
  const size_t from = size_t{blockIdx.x} * blocks + block;
  const size_t to = size_t{blockIdx.x} * x.pitch_blocks + block;
  reinterpret_cast<__half*>(x.values + to * kGemmBlockValues * 2)[position(lane)] =
      __int2half_rn(q[from * kActivationBlockValues + lane]);
  if (lane == 0) x.scale[to] = __fmul_rn(scale[from], kGemmScaleFactor);
}

}  // namespace hearth
