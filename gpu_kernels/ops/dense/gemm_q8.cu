// Q8 weights times many quantised rows of x. A block of threads computes a tile of 128 outputs by
// 128 rows, or of 64 by 64 where there are few: warps of 32 outputs by half of the rows. Every
// product of the tensor cores covers one block of 32 columns exactly; its integers go into fp32
// accumulators by one fma, in the order of the blocks: the bits of cpu_kernels' MatmulQ8. Twelve
// fp32 instructions for each product bound the rate: a quarter of the int8 rate of an H200.
#include <algorithm>

#include <cuda_fp16.h>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/dense/gemm_kernel.cuh"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kStages = 4;
constexpr uint32_t kStageBlocks = 2;  // of 32 columns
constexpr uint32_t kWarpBands = 2;
constexpr uint32_t kBlockCodeBytes = kBandRows * kQ8BlockValues;
constexpr uint32_t kBlockScaleBytes = kBandRows * 2;
constexpr uint32_t kBandStageBytes = kStageBlocks * kBlockCodeBytes;
constexpr uint32_t kRowStageBytes = kStageBlocks * kQ8BlockValues;

// A tile, its warps and a stage of shared memory:
//   codes    [band][block][8 steps][4 pieces of 16 bytes], piece j of step s at j ^ (s & 2)
//   q        [row of x][4 pieces], Line64Offset
//   w_scale  [band][block][16] fp16
//   x_scale  [block][row of x] fp32
template <uint32_t kTileOutputs, uint32_t kTileRows>
struct Tile {
  static constexpr uint32_t kRows = kTileRows;
  static constexpr uint32_t kBands = kTileOutputs / kBandRows;
  static constexpr uint32_t kWarpRows = kTileRows / 2;
  static constexpr uint32_t kThreads = 32 * 2 * kBands / kWarpBands;
  static constexpr uint32_t kCodes = 0;
  static constexpr uint32_t kQ = kBands * kBandStageBytes;
  static constexpr uint32_t kWScale = kQ + kTileRows * kRowStageBytes;
  static constexpr uint32_t kXScale = kWScale + kBands * kStageBlocks * kBlockScaleBytes;
  static constexpr uint32_t kStageBytes = kXScale + kStageBlocks * kTileRows * 4;
  // Every thread copies two pieces of codes, two of q and one scale of x.
  static_assert(kBands * kBandStageBytes == 2 * 16 * kThreads);
  static_assert(kTileRows * kRowStageBytes == 2 * 16 * kThreads);
  static_assert(kTileRows * kStageBlocks == kThreads);
};
using LargeTile = Tile<kQ8LargeTile.outputs, kQ8LargeTile.rows>;
using SmallTile = Tile<kQ8SmallTile.outputs, kQ8SmallTile.rows>;

// What one thread copies of every stage, stage after stage. Bands and rows beyond the end are the
// last ones again: their results are not written.
template <class T>
class StageCopier {
 public:
  __device__ StageCopier(const GemmKernelArgs& args, const KernelOutput& output,
                         uint32_t first_band, uint32_t first_row)
      : blocks_left_(args.cols / kQ8BlockValues) {
    constexpr uint32_t kBandPieces = kBandStageBytes / 16;
    constexpr uint32_t kRowPieces = kRowStageBytes / 16;
    constexpr uint32_t kScalePieces = kStageBlocks * kBlockScaleBytes / 16;
    const uint32_t thread = threadIdx.x;
    const uint32_t blocks = args.cols / kQ8BlockValues;
    const size_t band_bytes = size_t{blocks} * (kBlockCodeBytes + kBlockScaleBytes);
    const uint32_t last_band = (output.rows - 1) / kBandRows;
    const uint32_t piece = thread % kBandPieces;  // block, step, j
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t band = thread / kBandPieces + i * (T::kThreads / kBandPieces);
      codes_[i] = output.w + min(first_band + band, last_band) * band_bytes + piece * 16;
      const uint32_t row = thread / kRowPieces + i * (T::kThreads / kRowPieces);
      q_[i] = args.x.q + size_t{min(first_row + row, args.rows - 1)} * args.cols +
              thread % kRowPieces * 16;
    }
    codes_to_ =
        T::kCodes + thread / kBandPieces * kBandStageBytes + (piece ^ (piece >> 2 & 2u)) * 16;
    q_to_ = T::kQ + Line64Offset(thread / kRowPieces, thread % kRowPieces);
    const uint32_t scale_row = thread / kStageBlocks;
    x_scale_ = args.x.scale + size_t{min(first_row + scale_row, args.rows - 1)} * blocks +
               thread % kStageBlocks;
    x_scale_to_ = T::kXScale + (thread % kStageBlocks * T::kRows + scale_row) * 4;
    const uint32_t scale_band = min(first_band + thread / kScalePieces, last_band);
    w_scale_ = output.w + scale_band * band_bytes + size_t{blocks} * kBlockCodeBytes +
               thread % kScalePieces * 16;
  }

  // The next two blocks into the stage at `to`; one when there are no more.
  __device__ void CopyNext(uint32_t to) {
    constexpr uint32_t kBandPieces = kBandStageBytes / 16;
    constexpr uint32_t kRowPieces = kRowStageBytes / 16;
    constexpr uint32_t kScalePieces = kStageBlocks * kBlockScaleBytes / 16;
    const uint32_t thread = threadIdx.x;
    const bool both = blocks_left_ >= kStageBlocks;
    if (both || thread % kBandPieces < kBandPieces / 2) {
      CopyAhead16(to + codes_to_, codes_[0]);
      CopyAhead16(to + codes_to_ + T::kThreads / kBandPieces * kBandStageBytes, codes_[1]);
    }
    if (both || thread % kRowPieces < kRowPieces / 2) {
      CopyAhead16(to + q_to_, q_[0]);
      CopyAhead16(to + q_to_ + T::kThreads / kRowPieces * kRowStageBytes, q_[1]);
    }
    if (both || thread % kStageBlocks == 0) CopyAhead4(to + x_scale_to_, x_scale_);
    if (thread < T::kBands * kScalePieces && (both || thread % kScalePieces < kScalePieces / 2)) {
      CopyAhead16(to + T::kWScale + thread * 16, w_scale_);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      codes_[i] += kBandStageBytes;
      q_[i] += kRowStageBytes;
    }
    x_scale_ += kStageBlocks;
    w_scale_ += kStageBlocks * kBlockScaleBytes;
    blocks_left_ -= kStageBlocks;
  }

 private:
  uint32_t blocks_left_;
  const std::byte* codes_[2];
  const int8_t* q_[2];
  const float* x_scale_;
  const std::byte* w_scale_;
  uint32_t codes_to_;
  uint32_t q_to_;
  uint32_t x_scale_to_;
};

// Two bands by half of the tile's rows of x: a warp's accumulators. Of a pair (band, eight rows):
// rows of w and of x (2g, 2c), (2g, 2c + 1), (2g + 1, 2c), (2g + 1, 2c + 1).
template <class T>
struct WarpSums {
  static constexpr uint32_t kOctets = T::kWarpRows / 8;
  float of[kWarpBands][kOctets][4] = {};

  // Block `block` of a stage; `band` and `row` are the warp's first in the tile.
  __device__ void Add(const std::byte* stage, uint32_t block, uint32_t band, uint32_t row,
                      uint32_t lane) {
    constexpr uint32_t kSignFlips = 0x80808080u;  // value + 128 becomes a signed value
    const uint32_t g = lane / 4;
    const uint32_t c = lane % 4;
    uint32_t a[kWarpBands][4];
    float2 w_scale[kWarpBands];
#pragma unroll
    for (uint32_t m = 0; m < kWarpBands; ++m) {
      const uint32_t at = (band + m) * kStageBlocks + block;
      const std::byte* codes =
          stage + T::kCodes + at * kBlockCodeBytes + (c * 4 + (g / 2 ^ (c & 2u))) * 16 + g % 2 * 8;
      const uint2 low = *reinterpret_cast<const uint2*>(codes);
      const uint2 high = *reinterpret_cast<const uint2*>(codes + kBlockCodeBytes / 2);
      a[m][0] = low.x ^ kSignFlips;
      a[m][1] = low.y ^ kSignFlips;
      a[m][2] = high.x ^ kSignFlips;
      a[m][3] = high.y ^ kSignFlips;
      w_scale[m] = __half22float2(
          *reinterpret_cast<const __half2*>(stage + T::kWScale + at * kBlockScaleBytes + g * 4));
    }
    const uint32_t q = SharedAddress(stage + T::kQ);
    const auto* x_scales =
        reinterpret_cast<const float*>(stage + T::kXScale) + block * T::kRows + row + 2 * c;
#pragma unroll
    for (uint32_t n = 0; n < kOctets; n += 2) {
      uint32_t b[4];  // two octets of rows, two halves of the block each
      LoadMatrices(
          q + Line64Offset(row + n * 8 + lane / 16 * 8 + lane % 8, block * 2 + lane / 8 % 2), b);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const float2 x_scale = *reinterpret_cast<const float2*>(x_scales + (n + i) * 8);
#pragma unroll
        for (uint32_t m = 0; m < kWarpBands; ++m) {
          int32_t d[4];
          MultiplyInt8(a[m], b[2 * i], b[2 * i + 1], d);
          float(&sum)[4] = of[m][n + i];
          sum[0] = __fmaf_rn(__fmul_rn(w_scale[m].x, x_scale.x), ExactFloat(d[0]), sum[0]);
          sum[1] = __fmaf_rn(__fmul_rn(w_scale[m].x, x_scale.y), ExactFloat(d[1]), sum[1]);
          sum[2] = __fmaf_rn(__fmul_rn(w_scale[m].y, x_scale.x), ExactFloat(d[2]), sum[2]);
          sum[3] = __fmaf_rn(__fmul_rn(w_scale[m].y, x_scale.y), ExactFloat(d[3]), sum[3]);
        }
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(T::kThreads, 512 / T::kThreads)
    GemmQ8Kernel(const __grid_constant__ GemmKernelArgs args) {
  extern __shared__ uint4 shared[];
  const auto* stages = reinterpret_cast<const std::byte*>(shared);
  const uint32_t tile = blockIdx.x / args.row_tiles;
  const uint32_t first_row = blockIdx.x % args.row_tiles * T::kRows;
  const KernelOutput& output = args.outputs[OutputOf(args.outputs, 0, args.output_count, tile)];
  const uint32_t first_band = (tile - output.first_unit) * T::kBands;
  StageCopier<T> copier(args, output, first_band, first_row);
  const uint32_t blocks = args.cols / kQ8BlockValues;
  const uint32_t steps = (blocks + kStageBlocks - 1) / kStageBlocks;
  const uint32_t base = SharedAddress(shared);
#pragma unroll 1
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < steps) copier.CopyNext(base + s * T::kStageBytes);
    CommitCopies();
  }
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t band = warp / 2 * kWarpBands;
  const uint32_t row = warp % 2 * T::kWarpRows;
  WarpSums<T> sums;
#pragma unroll 1
  for (uint32_t step = 0; step < steps; ++step) {
    AwaitCopies<kStages - 2>();
    __syncthreads();  // the stage has arrived; all have left the one that is filled next
    const uint32_t next = step + kStages - 1;
    if (next < steps) copier.CopyNext(base + next % kStages * T::kStageBytes);
    CommitCopies();
    const std::byte* stage = stages + step % kStages * T::kStageBytes;
#pragma unroll
    for (uint32_t b = 0; b < kStageBlocks; ++b) {
      if (step * kStageBlocks + b < blocks) sums.Add(stage, b, band, row, lane);
    }
  }
#pragma unroll
  for (uint32_t m = 0; m < kWarpBands; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < WarpSums<T>::kOctets; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t t = first_row + row + n * 8 + lane % 4 * 2 + i;
        if (t >= args.rows) continue;
        WritePair(output, (first_band + band + m) * kBandRows + lane / 4 * 2, t, sums.of[m][n][i],
                  sums.of[m][n][i + 2]);
      }
    }
  }
}

template <class T>
absl::Status Launch(const GemmKernelArgs& args, uint32_t blocks, CudaStreamView stream) {
  constexpr uint32_t kSharedBytes = kStages * T::kStageBytes;
  HEARTH_RETURN_IF_ERROR(
      AllowSharedBytes(reinterpret_cast<const void*>(GemmQ8Kernel<T>), kSharedBytes));
  GemmQ8Kernel<T><<<blocks, T::kThreads, kSharedBytes, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of a dense product");
}

}  // namespace

absl::Status LaunchGemmQ8(std::span<const MatmulOutput> outputs, const DeviceRows& x, uint32_t rows,
                          uint32_t cols, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const GpuLimits gpu, CurrentLimits(stream.gpu()));
  const GemmTile tile = ChooseQ8Tile(outputs, rows, gpu.multiprocessor_count);
  const GemmTileMap map = MapTiles(outputs, rows, tile);
  const GemmKernelArgs args = GemmKernelArgsOf(outputs, map, x, rows, cols);
  const uint32_t blocks = map.weight_tiles * map.row_tiles;
  return tile == kQ8LargeTile ? Launch<LargeTile>(args, blocks, stream)
                              : Launch<SmallTile>(args, blocks, stream);
}

}  // namespace hearth
