// Q8 bands times quantised rows of x, on tensor cores: one product of 16 weight rows by 8 rows of x
// covers a block of 32 columns, so one row of x costs what eight do. Included by dense_matmul.cu.
//
// A warp copies its weights ahead into a ring of its own in shared memory, four blocks (a quad) to
// a slot: as soon as a slot is used, the quad that is kSlots further on in the warp's work is asked
// for, which may belong to its next band.
#pragma once

#include <cuda_fp16.h>

#include "gpu_kernels/ops/dense/dense_kernel.cuh"
#include "gpu_kernels/ops/dense/mma.cuh"

namespace hearth {

inline constexpr uint32_t kQuadBlocks = 4;
inline constexpr uint32_t kChunkBlocks = kMatmulChunkCols / kQ8BlockValues;
inline constexpr uint32_t kChunkQuads = kChunkBlocks / kQuadBlocks;
inline constexpr uint32_t kBlockCodeBytes = kBandRows * kQ8BlockValues;
inline constexpr uint32_t kBlockScaleBytes = kBandRows * 2;
static_assert(kMatmulSlotBytes == kQuadBlocks * (kBlockCodeBytes + kBlockScaleBytes));

// Rows of x in shared memory, as if there were kRows: a class of row counts (dense_plan.h). Rows
// that do not exist have scales of zero, whatever their values.
struct StagedRows {
  const uint32_t* q;   // [block][row] of kRows: eight words, see WordOfRow
  const float* scale;  // [block][8 or 16]
};

// Where the first half of a row's 32 values lies among its eight words; the other half lies at the
// other four. Rows read together then lie in different banks.
__device__ inline uint32_t WordOfRow(uint32_t row) { return row & 4; }

// Asks for the values of `count` blocks, by `threads` threads of which this is `thread`. They are
// there after the copies have been awaited. block_of(i): the block of x that is the i-th here.
template <int kRows, class BlockOf>
__device__ void CopyRows(const MatmulKernelArgs& args, uint32_t thread, uint32_t threads,
                         uint32_t count, const BlockOf& block_of, uint32_t to) {
  const uint32_t blocks = args.cols / kQ8BlockValues;
#pragma unroll 4
  for (uint32_t i = thread; i < count * kRows * 2; i += threads) {
    const uint32_t row = i / 2 % kRows;
    const uint32_t block = block_of(i / (2 * kRows));
    const uint32_t half = i % 2 * 4 ^ WordOfRow(row);
    if (row < args.rows && block < blocks) {
      CopyAhead16(to + (i / 2 * 8 + half) * 4,
                  args.x.q + (size_t{row} * blocks + block) * kQ8BlockValues + i % 2 * 16);
    }
  }
}

// Their scales.
template <int kRows, class BlockOf>
__device__ void StageScales(const MatmulKernelArgs& args, uint32_t thread, uint32_t threads,
                            uint32_t count, const BlockOf& block_of, float* scale) {
  constexpr uint32_t kPaddedRows =
      kRows > static_cast<int>(kTensorRows) ? 2 * kTensorRows : kTensorRows;
  const uint32_t blocks = args.cols / kQ8BlockValues;
#pragma unroll 4
  for (uint32_t i = thread; i < count * kPaddedRows; i += threads) {
    const uint32_t row = i % kPaddedRows;
    const uint32_t block = block_of(i / kPaddedRows);
    scale[i] =
        row < args.rows && block < blocks ? args.x.scale[size_t{row} * blocks + block] : 0.0f;
  }
}

// Copies the quad of a band of `blocks` blocks that starts at block `first` into the slot, as far
// as the band goes.
__device__ inline void CopyQuad(const std::byte* band, uint32_t blocks, uint32_t first,
                                uint32_t lane, uint32_t slot) {
  if (first >= blocks) return;
  const uint32_t count = min(blocks - first, kQuadBlocks);
  const std::byte* codes = band + first * kBlockCodeBytes + lane * 16;
  // Piece j of step s lies at j ^ (s & 2): the lanes of a product read different banks.
  const uint32_t to = slot + (lane ^ (lane >> 2 & 2u)) * 16;
#pragma unroll
  for (uint32_t i = 0; i < kQuadBlocks; ++i) {
    if (i < count) CopyAhead16(to + i * kBlockCodeBytes, codes + i * kBlockCodeBytes);
  }
  if (lane < count * (kBlockScaleBytes / 16)) {
    CopyAhead16(slot + kQuadBlocks * kBlockCodeBytes + lane * 16,
                band + (blocks * kBlockCodeBytes + first * kBlockScaleBytes + lane * 16));
  }
}

// Walks over the quads of a warp, kChunkQuads for each of its chunks, band after band. Every band
// has the same number of places; those beyond its end are empty.
class QuadCursor {
 public:
  __device__ QuadCursor(const MatmulKernelArgs& args, const TeamPlace& place, uint32_t first_unit)
      : unit_(first_unit + place.team), quad_(0) {
    Find(args, place);
  }
  // Copies the quad into the slot, or nothing at an empty place, and goes on.
  __device__ void CopyAndAdvance(const MatmulKernelArgs& args, const TeamPlace& place,
                                 uint32_t slot) {
    if (band_ != nullptr) {
      CopyQuad(band_, args.cols / kQ8BlockValues, first_, place.lane, slot);
    }
    if (++quad_ == args.places) {
      quad_ = 0;
      unit_ += gridDim.x * args.teams;
      Find(args, place);
    } else {
      first_ += quad_ % kChunkQuads != 0 ? kQuadBlocks : args.segments * kChunkBlocks - kQuadBlocks;
    }
  }

 private:
  __device__ void Find(const MatmulKernelArgs& args, const TeamPlace& place) {
    band_ = nullptr;
    if (unit_ >= args.band_count) return;
    const KernelOutput& output =
        args.outputs[OutputOf(args.outputs, 0, args.q8_output_count, unit_)];
    const uint32_t blocks = args.cols / kQ8BlockValues;
    band_ = output.w +
            size_t{unit_ - output.first_unit} * blocks * (kBlockCodeBytes + kBlockScaleBytes);
    first_ = place.segment * kChunkBlocks;
  }
  uint32_t unit_;
  uint32_t quad_;                    // place in the band
  uint32_t first_ = 0;               // its first block
  const std::byte* band_ = nullptr;  // null: there are no more bands
};

template <int kGroups>
struct BandSums {
  float of[kGroups][4];  // rows of w and of x: (2g, 2c), (2g, 2c + 1), (2g + 1, 2c), ...
};

// Block i of the quad in `slot`, block `block` of the band.
template <int kRows, int kGroups>
__device__ inline void AddBlock(const std::byte* slot, uint32_t i, const StagedRows& x,
                                uint32_t block, uint32_t lane, BandSums<kGroups>* sums) {
  constexpr uint32_t kSignFlips = 0x80808080u;  // value + 128 becomes a signed value
  const uint32_t g = lane / 4;
  const uint32_t c = lane % 4;
  const std::byte* codes =
      slot + i * kBlockCodeBytes + (c * 4 + (g / 2 ^ (c & 2u))) * 16 + g % 2 * 8;
  const uint2 low = *reinterpret_cast<const uint2*>(codes);
  const uint2 high = *reinterpret_cast<const uint2*>(codes + kBlockCodeBytes / 2);
  const uint32_t a[4] = {low.x ^ kSignFlips, low.y ^ kSignFlips, high.x ^ kSignFlips,
                         high.y ^ kSignFlips};
  const float2 w_scale = __half22float2(*reinterpret_cast<const __half2*>(
      slot + kQuadBlocks * kBlockCodeBytes + i * kBlockScaleBytes + g * 4));
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const uint32_t row = group * kTensorRows + g;
    uint2 b = {0, 0};
    if (row < kRows) {
      const uint32_t* const words = x.q + (block * kRows + row) * 8 + c;
      b = {words[WordOfRow(row)], words[WordOfRow(row) ^ 4]};
    }
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
__device__ void StoreSums(uint32_t rows, uint32_t lane, const BandSums<kGroups>& sums, float* to) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t t = group * kTensorRows + lane % 4 * 2 + i;
      if (t < rows) {
        *reinterpret_cast<float2*>(to + t * kBandRows + lane / 4 * 2) = {sums.of[group][i],
                                                                         sums.of[group][i + 2]};
      }
    }
  }
}

// The finished sums of a band, or of a warp's segment of it.
template <int kGroups>
__device__ void FinishBand(const MatmulKernelArgs& args, const TeamPlace& place, uint32_t unit,
                           const BandSums<kGroups>& sums, SegmentSums* segment_sums) {
  const bool has_unit = unit < args.band_count;
  const KernelOutput& output = args.outputs[OutputOf(args.outputs, 0, args.q8_output_count, unit)];
  const uint32_t band = unit - output.first_unit;
  if (args.segments == 1) {
    if (has_unit) WriteSums<kGroups>(args, output, band, place.lane, sums);
    return;
  }
  if (has_unit) {
    StoreSums<kGroups>(args.rows, place.lane, sums,
                       segment_sums->Of(args, place.team, place.segment));
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

// All bands of this block of threads, from `first_unit` on. `x_room`: for the staged rows; `ring`:
// this warp's slots.
template <int kRows, int kSlots>
__device__ void BandProducts(const MatmulKernelArgs& args, const TeamPlace& place,
                             uint32_t first_unit, uint4* x_room, std::byte* ring,
                             SegmentSums* segment_sums) {
  constexpr int kGroups = kRows > static_cast<int>(kTensorRows) ? 2 : 1;
  const uint32_t blocks = args.cols / kQ8BlockValues;
  const uint32_t ring_address = SharedAddress(ring);
  QuadCursor ahead(args, place, first_unit);
#pragma unroll
  for (uint32_t s = 0; s < kSlots; ++s) {
    ahead.CopyAndAdvance(args, place, ring_address + s * kMatmulSlotBytes);
    CommitCopies();
  }
  AwaitLaunchBefore();
  const auto block_of = [](uint32_t i) { return i; };
  auto* const scale = reinterpret_cast<float*>(x_room + size_t{blocks} * kRows * 2);
  CopyRows<kRows>(args, threadIdx.x, blockDim.x, blocks, block_of, SharedAddress(x_room));
  CommitCopies();
  StageScales<kRows>(args, threadIdx.x, blockDim.x, blocks, block_of, scale);
  AwaitCopies<0>();
  __syncthreads();
  AllowLaunchAfter();
  const StagedRows x = {reinterpret_cast<const uint32_t*>(x_room), scale};

  uint32_t slot = 0;
  for (uint32_t first = first_unit; first < args.band_count; first += gridDim.x * args.teams) {
    BandSums<kGroups> sums = {};
    uint32_t block = place.segment * kChunkBlocks;
    for (uint32_t quad = 0; quad < args.places; ++quad) {
      AwaitCopies<kSlots - 1>();
      __syncwarp();  // all lanes' copies have arrived
      const std::byte* from = ring + slot * kMatmulSlotBytes;
      if (block + kQuadBlocks <= blocks) {
#pragma unroll
        for (uint32_t i = 0; i < kQuadBlocks; ++i) {
          AddBlock<kRows>(from, i, x, block + i, place.lane, &sums);
        }
      } else {
#pragma unroll 1
        for (uint32_t i = 0; block + i < blocks; ++i) {
          AddBlock<kRows>(from, i, x, block + i, place.lane, &sums);
        }
      }
      __syncwarp();  // all lanes have read the slot
      ahead.CopyAndAdvance(args, place, ring_address + slot * kMatmulSlotBytes);
      CommitCopies();
      slot = slot + 1 == kSlots ? 0 : slot + 1;
      block += quad % kChunkQuads == 0 ? kQuadBlocks : args.segments * kChunkBlocks - kQuadBlocks;
    }
    FinishBand<kGroups>(args, place, first + place.team, sums, segment_sums);
  }
}

}  // namespace hearth
