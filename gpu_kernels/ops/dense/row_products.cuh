// Row-major bf16 or fp32 matrices times fp32 rows of x, by fused multiply-adds. Included by
// dense_matmul.cu.
//
// A warp computes four weight rows over its chunks of 256 columns: lane l the columns 8l..8l+7 of a
// chunk, in order. The lanes' sums meet in a butterfly (16, 8, 4, 2, 1 apart), the warps' in order.
// bf16 weights are copied ahead, a chunk to a slot of the warp's ring; fp32 ones are read as they
// are needed.
#pragma once

#include "gpu_kernels/ops/dense/dense_kernel.cuh"
#include "gpu_kernels/ops/dense/mma.cuh"

namespace hearth {

inline constexpr uint32_t kLaneCols = 8;
inline constexpr uint32_t kRowPieceBytes = kMatmulChunkCols * 2;  // of a bf16 chunk
static_assert(kMatmulSlotBytes >= kRowUnitRows * kRowPieceBytes);

__device__ inline void DecodeBf16(const uint4& v, float (&w)[kLaneCols]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    w[2 * j] = __uint_as_float(words[j] << 16);
    w[2 * j + 1] = __uint_as_float(words[j] & 0xFFFF0000u);
  }
}

// Eight floats in device memory, or zeros. Not through the read-only path: the launch before this
// one may have written them.
__device__ inline void LoadFloats(const float* from, bool valid, float (&v)[kLaneCols]) {
  const float4 zero = {0, 0, 0, 0};
  const float4 low = valid ? reinterpret_cast<const float4*>(from)[0] : zero;
  const float4 high = valid ? reinterpret_cast<const float4*>(from)[1] : zero;
  v[0] = low.x;
  v[1] = low.y;
  v[2] = low.z;
  v[3] = low.w;
  v[4] = high.x;
  v[5] = high.y;
  v[6] = high.z;
  v[7] = high.w;
}

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

// A unit: four rows of one matrix by one group of at most eight rows of x.
struct RowUnit {
  const KernelOutput* output;  // null: there is none
  uint32_t first_row;          // of w
  uint32_t first_x;
  uint32_t rows;  // of x

  __device__ RowUnit(const MatmulKernelArgs& args, uint32_t index) {
    const uint32_t groups = (args.rows + kTensorRows - 1) / kTensorRows;
    const uint32_t unit = index / groups;
    output = nullptr;
    if (unit >= args.row_unit_count) return;
    output = &args.outputs[OutputOf(args.outputs, args.q8_output_count, args.output_count, unit)];
    first_row = (unit - output->first_unit) * kRowUnitRows;
    first_x = index % groups * kTensorRows;
    rows = min(args.rows - first_x, kTensorRows);
  }
  // Row r of the unit's four, the last one again beyond the end.
  __device__ uint32_t Row(uint32_t r) const { return min(first_row + r, output->rows - 1); }
};

// Copies eight columns of the unit's rows from `col` on into the lane's share of the slot, if there
// are any in bf16.
__device__ inline void CopyRowChunk(const MatmulKernelArgs& args, const RowUnit& unit,
                                    uint32_t lane, uint32_t col, uint32_t slot) {
  if (unit.output == nullptr || unit.output->format != MatrixFormat::kBf16 || col >= args.cols) {
    return;
  }
#pragma unroll
  for (uint32_t r = 0; r < kRowUnitRows; ++r) {
    CopyAhead16(slot + r * kRowPieceBytes + lane * 16,
                unit.output->w + (size_t{unit.Row(r)} * args.cols + col) * 2);
  }
}

// Walks over the chunks of a warp, unit after unit.
class RowChunkCursor {
 public:
  __device__ RowChunkCursor(const MatmulKernelArgs& args, const TeamPlace& place)
      : index_(blockIdx.x * args.teams + place.team), chunk_(place.segment), unit_(args, index_) {}
  // Copies the lane's columns of the chunk into the slot, if there are any in bf16, and goes on.
  __device__ void CopyAndAdvance(const MatmulKernelArgs& args, const TeamPlace& place,
                                 uint32_t slot) {
    CopyRowChunk(args, unit_, place.lane, chunk_ * kMatmulChunkCols + place.lane * kLaneCols, slot);
    chunk_ += args.segments;
    if (++place_ == args.places / kMatmulPlacesPerChunk) {
      place_ = 0;
      chunk_ = place.segment;
      index_ += gridDim.x * args.teams;
      unit_ = RowUnit(args, index_);
    }
  }

 private:
  uint32_t index_;
  uint32_t chunk_;
  uint32_t place_ = 0;  // chunks of this unit so far
  RowUnit unit_;
};

// The lane's columns of one chunk, of four rows of w by kRows rows of x: adds to
// [row of w][row of x].
template <int kRows>
__device__ void AddChunk(const MatmulKernelArgs& args, const RowUnit& unit, uint32_t col,
                         const uint4* slot, float (&sums)[kRowUnitRows * kRows]) {
  constexpr int kAtOnce = kRows < 4 ? kRows : 4;  // rows of x in registers
  const bool bf16 = unit.output->format == MatrixFormat::kBf16;
#pragma unroll
  for (int first = 0; first < kRows; first += kAtOnce) {
    float x[kAtOnce][kLaneCols];
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
      const uint32_t row = unit.first_x + first + t;
      LoadFloats(args.x.x + size_t{row} * args.x.x_stride + col, first + t < unit.rows, x[t]);
    }
#pragma unroll
    for (uint32_t r = 0; r < kRowUnitRows; ++r) {
      float w[kLaneCols];
      if (bf16) {
        DecodeBf16(slot[r * (kRowPieceBytes / 16)], w);
      } else {
        LoadFloats(
            reinterpret_cast<const float*>(unit.output->w) + size_t{unit.Row(r)} * args.cols + col,
            true, w);
      }
#pragma unroll
      for (int t = 0; t < kAtOnce; ++t) {
        float& sum = sums[r * kRows + first + t];
#pragma unroll
        for (uint32_t k = 0; k < kLaneCols; ++k) sum = __fmaf_rn(w[k], x[t][k], sum);
      }
    }
  }
}

// The finished sums of a unit, or of a warp's segment of it: of value `lane / (32 / kValues)`.
template <int kRows>
__device__ void FinishRowUnit(const MatmulKernelArgs& args, const TeamPlace& place,
                              const RowUnit& unit, float sum, SegmentSums* segment_sums) {
  constexpr uint32_t kValues = kRowUnitRows * kRows;
  const uint32_t value = place.lane / (32 / kValues);
  const bool owns =
      unit.output != nullptr && place.lane % (32 / kValues) == 0 && value % kRows < unit.rows;
  const uint32_t row_of_w = unit.first_row + value / kRows;
  const uint32_t row_of_x = unit.first_x + value % kRows;
  if (args.segments == 1) {
    if (owns) WriteOutput(*unit.output, row_of_w, row_of_x, sum);
    return;
  }
  if (owns) segment_sums->Of(args, place.team, place.segment)[value] = sum;
  __syncthreads();
  if (owns && place.segment == 0) {
    const float* stored = segment_sums->Of(args, place.team, 0);
    float total = stored[value];
    for (uint32_t s = 1; s < args.segments; ++s) {
      total = __fadd_rn(total, stored[s * segment_sums->unit_values + value]);
    }
    WriteOutput(*unit.output, row_of_w, row_of_x, total);
  }
  segment_sums->parity ^= 1;
}

// All row units of this block of threads; `ring`: this warp's slots, free when this returns.
template <int kRows, int kSlots>
__device__ void RowProducts(const MatmulKernelArgs& args, const TeamPlace& place, std::byte* ring,
                            SegmentSums* segment_sums) {
  const uint32_t index_count = args.row_unit_count * ((args.rows + kTensorRows - 1) / kTensorRows);
  const uint32_t ring_address = SharedAddress(ring);
  RowChunkCursor ahead(args, place);
#pragma unroll
  for (uint32_t s = 0; s < kSlots; ++s) {
    ahead.CopyAndAdvance(args, place, ring_address + s * kMatmulSlotBytes);
    CommitCopies();
  }
  AwaitLaunchBefore();
  AllowLaunchAfter();
  uint32_t slot = 0;
  for (uint32_t first = blockIdx.x * args.teams; first < index_count;
       first += gridDim.x * args.teams) {
    const RowUnit unit(args, first + place.team);
    float sums[kRowUnitRows * kRows] = {};
    for (uint32_t i = 0; i < args.places / kMatmulPlacesPerChunk; ++i) {
      const uint32_t col =
          (place.segment + i * args.segments) * kMatmulChunkCols + place.lane * kLaneCols;
      AwaitCopies<kSlots - 1>();  // a lane reads what it copied itself
      if (unit.output != nullptr && col < args.cols) {
        AddChunk<kRows>(args, unit, col,
                        reinterpret_cast<const uint4*>(ring + slot * kMatmulSlotBytes) + place.lane,
                        sums);
      }
      ahead.CopyAndAdvance(args, place, ring_address + slot * kMatmulSlotBytes);
      CommitCopies();
      slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
    FinishRowUnit<kRows>(args, place, unit, SumOverLanes<kRowUnitRows * kRows>(sums, place.lane),
                         segment_sums);
  }
}

}  // namespace hearth
