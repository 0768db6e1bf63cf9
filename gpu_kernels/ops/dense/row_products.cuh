// Row-major bf16 or fp32 matrices times fp32 rows of x, by fused multiply-adds. Included by
// dense_matmul.cu.
//
// A warp computes four weight rows over its chunks of 256 columns: lane l the columns 8l..8l+7 of a
// chunk, in order. The lanes' sums meet in a butterfly (16, 8, 4, 2, 1 apart), the warps' in order.
#pragma once

#include "gpu_kernels/ops/dense/band_products.cuh"
#include "gpu_kernels/ops/dense/dense_kernel.cuh"

namespace hearth {

inline constexpr uint32_t kLaneCols = 8;

// Eight weights of one row as they lie in memory.
template <MatrixFormat kFormat>
struct RawWeights {
  static constexpr int kLoads = kFormat == MatrixFormat::kBf16 ? 1 : 2;  // of 16 bytes
  static constexpr uint32_t kValueBytes = kFormat == MatrixFormat::kBf16 ? 2 : 4;
  uint4 v[kLoads];

  __device__ void Load(const std::byte* row, uint32_t col) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = LoadOnce16(row + size_t{col} * kValueBytes + i * 16);
  }
  __device__ void Decode(float (&w)[kLaneCols]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kFormat == MatrixFormat::kBf16) {
          w[2 * j] = __uint_as_float(words[j] << 16);
          w[2 * j + 1] = __uint_as_float(words[j] & 0xFFFF0000u);
        } else {
          w[4 * i + j] = __uint_as_float(words[j]);
        }
      }
    }
  }
};

// Sums each of kCount (a power of two, at most 32) values over the lanes; lane l is left with the
// sum of value l / (32 / kCount).
template <int kCount>
__device__ inline float SumOverLanes(float (&v)[kCount], uint32_t lane) {
  constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
#pragma unroll
  for (int step = 0; step < 5; ++step) {
    const uint32_t apart = 16u >> step;
    const int half = (kCount >> step) / 2;  // 0: one value is left
    if (half == 0) {
      v[0] = __fadd_rn(v[0], __shfl_xor_sync(kAllLanes, v[0], apart));
      continue;
    }
    const bool upper = (lane & apart) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      if (i >= half) continue;
      const float mine = upper ? v[i + half] : v[i];
      const float other = upper ? v[i] : v[i + half];
      v[i] = __fadd_rn(mine, __shfl_xor_sync(kAllLanes, other, apart));
    }
  }
  return v[0];
}

// The warp's share of four rows of w by kRows rows of x, of which `rows` exist: [row of w][row of
// x].
template <MatrixFormat kFormat, int kRows>
__device__ float RowUnitSum(const MatmulKernelArgs& args, const KernelOutput& output,
                            uint32_t first_row, const float* x, uint32_t rows,
                            const TeamPlace& place) {
  using Raw = RawWeights<kFormat>;
  const std::byte* w_rows[kRowUnitRows];
#pragma unroll
  for (uint32_t r = 0; r < kRowUnitRows; ++r) {
    const uint32_t row = min(first_row + r, output.rows - 1);
    w_rows[r] = output.w + size_t{row} * args.cols * Raw::kValueBytes;
  }
  float sums[kRowUnitRows * kRows] = {};
  for (uint32_t col = place.segment * kMatmulChunkCols + place.lane * kLaneCols; col < args.cols;
       col += args.segments * kMatmulChunkCols) {
    Raw raw[kRowUnitRows];
#pragma unroll
    for (uint32_t r = 0; r < kRowUnitRows; ++r) raw[r].Load(w_rows[r], col);
    float w[kRowUnitRows][kLaneCols];
#pragma unroll
    for (uint32_t r = 0; r < kRowUnitRows; ++r) raw[r].Decode(w[r]);
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      if (t >= rows) continue;
      const auto* from = reinterpret_cast<const float4*>(x + size_t{args.x.x_stride} * t + col);
      const float4 low = __ldg(from);
      const float4 high = __ldg(from + 1);
      const float values[kLaneCols] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (uint32_t r = 0; r < kRowUnitRows; ++r) {
#pragma unroll
        for (uint32_t k = 0; k < kLaneCols; ++k) {
          sums[r * kRows + t] = __fmaf_rn(w[r][k], values[k], sums[r * kRows + t]);
        }
      }
    }
  }
  return SumOverLanes<kRowUnitRows * kRows>(sums, place.lane);
}

// All row units of this block of threads, dealt from the last block on: bands are dealt from the
// first. A unit is four rows of w by one group of at most eight rows of x.
template <int kRows>
__device__ void RowProducts(const MatmulKernelArgs& args, const TeamPlace& place,
                            SegmentSums* segment_sums) {
  constexpr uint32_t kValues = kRowUnitRows * kRows;
  const uint32_t x_groups = (args.rows + kTensorRows - 1) / kTensorRows;
  const uint32_t unit_count = args.row_unit_count * x_groups;
  for (uint32_t first = (gridDim.x - 1 - blockIdx.x) * args.teams; first < unit_count;
       first += gridDim.x * args.teams) {
    const uint32_t unit = (first + place.team) / x_groups;
    const uint32_t first_x = (first + place.team) % x_groups * kTensorRows;
    const bool has_unit = unit < args.row_unit_count;
    const KernelOutput& output =
        args.outputs[OutputOf(args.outputs, args.q8_output_count, args.output_count, unit)];
    const uint32_t first_row = (unit - output.first_unit) * kRowUnitRows;
    const uint32_t rows = min(args.rows - first_x, kTensorRows);
    float sum = 0;
    if (has_unit) {
      const float* x = args.x.x + size_t{first_x} * args.x.x_stride;
      sum = output.format == MatrixFormat::kBf16
                ? RowUnitSum<MatrixFormat::kBf16, kRows>(args, output, first_row, x, rows, place)
                : RowUnitSum<MatrixFormat::kF32, kRows>(args, output, first_row, x, rows, place);
    }
    const uint32_t value = place.lane / (32 / kValues);
    const bool owns = has_unit && place.lane % (32 / kValues) == 0 && value % kRows < rows;
    const uint32_t row_of_w = first_row + value / kRows;
    const uint32_t row_of_x = first_x + value % kRows;
    if (args.segments == 1) {
      if (owns) WriteOutput(output, row_of_w, row_of_x, sum);
      continue;
    }
    if (owns) segment_sums->Of(args, place.team, place.segment)[value] = sum;
    __syncthreads();
    if (owns && place.segment == 0) {
      const float* stored = segment_sums->Of(args, place.team, 0);
      float total = stored[value];
      for (uint32_t s = 1; s < args.segments; ++s) {
        total = __fadd_rn(total, stored[s * segment_sums->unit_values + value]);
      }
      WriteOutput(output, row_of_w, row_of_x, total);
    }
    segment_sums->parity ^= 1;
  }
}

}  // namespace hearth
