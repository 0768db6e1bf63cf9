// Q8 weights times many quantised rows of x. A block of threads computes 128 outputs of 128 (or 64)
// rows: eight warps of 32 outputs by half of the rows. Every product of the tensor cores covers one
// block of 32 columns exactly; its integers go into fp32 accumulators by one fma, in the order of
// the blocks: the bits of cpu_kernels' MatmulQ8.
// Twelve fp32 instructions for each product bound the rate: a quarter of the int8 rate of an H200.
#include <algorithm>

#include <cuda_fp16.h>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/dense/gemm_kernel.cuh"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kStages = 4;
constexpr uint32_t kStageBlocks = 2;  // of 32 columns
constexpr uint32_t kTileBands = kQ8TileOutputs / kBandRows;
constexpr uint32_t kWarpBands = 2;
constexpr uint32_t kBlockCodeBytes = kBandRows * kQ8BlockValues;
constexpr uint32_t kBlockScaleBytes = kBandRows * 2;

// A stage of shared memory:
//   codes    [band][block][8 steps][4 pieces of 16 bytes], piece j of step s at j ^ (s & 2)
//   q        [row of x][4 pieces], Line64Offset
//   w_scale  [band][block][16] fp16
//   x_scale  [block][row of x] fp32
template <uint32_t kTileRows>
struct StageLayout {
  static constexpr uint32_t kCodes = 0;
  static constexpr uint32_t kQ = kTileBands * kStageBlocks * kBlockCodeBytes;
  static constexpr uint32_t kWScale = kQ + kTileRows * kStageBlocks * kQ8BlockValues;
  static constexpr uint32_t kXScale = kWScale + kTileBands * kStageBlocks * kBlockScaleBytes;
  static constexpr uint32_t kBytes = kXScale + kStageBlocks * kTileRows * 4;
};

// What one thread copies of every stage.
template <uint32_t kTileRows>
class StageCopier {
 public:
  __device__ StageCopier(const GemmKernelArgs& args, const KernelOutput& output,
                         uint32_t first_band, uint32_t first_row)
      : args_(args),
        blocks_(args.cols / kQ8BlockValues),
        band_bytes_(size_t{blocks_} * (kBlockCodeBytes + kBlockScaleBytes)),
        bands_(output.w + first_band * band_bytes_),
        band_count_(min((output.rows + kBandRows - 1) / kBandRows - first_band, kTileBands)),
        first_row_(first_row) {}

  // Blocks [block, block + 2) into the stage at `to`.
  __device__ void Copy(uint32_t block, uint32_t to) const {
    using Layout = StageLayout<kTileRows>;
    constexpr uint32_t kBandPieces = kStageBlocks * kBlockCodeBytes / 16;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < kTileBands * kBandPieces; i += kThreads) {
      const uint32_t band = i / kBandPieces;
      const uint32_t piece = i % kBandPieces;  // block, step, j
      const bool valid = band < band_count_ && block + piece / 32 < blocks_;
      CopyAhead16(
          to + Layout::kCodes + band * kBandPieces * 16 + (piece ^ (piece >> 2 & 2u)) * 16,
          bands_ + (valid ? band * band_bytes_ + size_t{block} * kBlockCodeBytes + piece * 16 : 0),
          valid);
    }
    constexpr uint32_t kLinePieces = kStageBlocks * kQ8BlockValues / 16;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < kTileRows * kLinePieces; i += kThreads) {
      const uint32_t row = i / kLinePieces;
      const uint32_t piece = i % kLinePieces;
      const bool valid = first_row_ + row < args_.rows && block + piece / 2 < blocks_;
      const size_t from =
          size_t{first_row_ + row} * args_.cols + block * kQ8BlockValues + piece * 16;
      CopyAhead16(to + Layout::kQ + Line64Offset(row, piece), args_.x.q + (valid ? from : 0),
                  valid);
    }
    if (threadIdx.x < kStageBlocks * kTileRows) {
      const uint32_t row = threadIdx.x / kStageBlocks;
      const uint32_t b = threadIdx.x % kStageBlocks;
      const bool valid = first_row_ + row < args_.rows && block + b < blocks_;
      const size_t from = size_t{first_row_ + row} * blocks_ + block + b;
      CopyAhead4(to + Layout::kXScale + (b * kTileRows + row) * 4,
                 args_.x.scale + (valid ? from : 0), valid);
    }
    constexpr uint32_t kScalePieces = kStageBlocks * kBlockScaleBytes / 16;
    if (threadIdx.x < kTileBands * kScalePieces) {
      const uint32_t band = threadIdx.x / kScalePieces;
      const uint32_t piece = threadIdx.x % kScalePieces;
      const bool valid = band < band_count_ && block + piece / 2 < blocks_;
      const size_t from = band * band_bytes_ + size_t{blocks_} * kBlockCodeBytes +
                          block * kBlockScaleBytes + piece * 16;
      CopyAhead16(to + Layout::kWScale + threadIdx.x * 16, bands_ + (valid ? from : 0), valid);
    }
  }

 private:
  const GemmKernelArgs& args_;
  uint32_t blocks_;
  size_t band_bytes_;
  const std::byte* bands_;
  uint32_t band_count_;
  uint32_t first_row_;
};

// Two bands by half of the tile's rows of x: a warp's accumulators. Of a pair (band, eight rows):
// rows of w and of x (2g, 2c), (2g, 2c + 1), (2g + 1, 2c), (2g + 1, 2c + 1).
template <uint32_t kTileRows>
struct WarpSums {
  static constexpr uint32_t kWarpRows = kTileRows / 2;
  static constexpr uint32_t kOctets = kWarpRows / 8;
  float of[kWarpBands][kOctets][4] = {};

  // Block `block` of a stage; `band` and `row` are the warp's first in the tile.
  __device__ void Add(const std::byte* stage, uint32_t block, uint32_t band, uint32_t row,
                      uint32_t lane) {
    using Layout = StageLayout<kTileRows>;
    constexpr uint32_t kSignFlips = 0x80808080u;  // value + 128 becomes a signed value
    const uint32_t g = lane / 4;
    const uint32_t c = lane % 4;
    uint32_t a[kWarpBands][4];
    float2 w_scale[kWarpBands];
#pragma unroll
    for (uint32_t m = 0; m < kWarpBands; ++m) {
      const uint32_t at = (band + m) * kStageBlocks + block;
      const std::byte* codes = stage + Layout::kCodes + at * kBlockCodeBytes +
                               (c * 4 + (g / 2 ^ (c & 2u))) * 16 + g % 2 * 8;
      const uint2 low = *reinterpret_cast<const uint2*>(codes);
      const uint2 high = *reinterpret_cast<const uint2*>(codes + kBlockCodeBytes / 2);
      a[m][0] = low.x ^ kSignFlips;
      a[m][1] = low.y ^ kSignFlips;
      a[m][2] = high.x ^ kSignFlips;
      a[m][3] = high.y ^ kSignFlips;
      w_scale[m] = __half22float2(*reinterpret_cast<const __half2*>(stage + Layout::kWScale +
                                                                    at * kBlockScaleBytes + g * 4));
    }
    const uint32_t q = SharedAddress(stage + Layout::kQ);
    const auto* x_scales =
        reinterpret_cast<const float*>(stage + Layout::kXScale) + block * kTileRows + row + 2 * c;
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

template <uint32_t kTileRows>
__global__ void __launch_bounds__(kThreads, 2)
    GemmQ8Kernel(const __grid_constant__ GemmKernelArgs args) {
  using Layout = StageLayout<kTileRows>;
  extern __shared__ uint4 shared[];
  const auto* stages = reinterpret_cast<const std::byte*>(shared);
  const uint32_t tile = blockIdx.x / args.row_tiles;
  const uint32_t first_row = blockIdx.x % args.row_tiles * kTileRows;
  const KernelOutput& output = args.outputs[OutputOf(args.outputs, 0, args.output_count, tile)];
  const uint32_t first_band = (tile - output.first_unit) * kTileBands;
  const StageCopier<kTileRows> copier(args, output, first_band, first_row);
  const uint32_t blocks = args.cols / kQ8BlockValues;
  const uint32_t steps = (blocks + kStageBlocks - 1) / kStageBlocks;
  const uint32_t base = SharedAddress(shared);
#pragma unroll
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < steps) copier.Copy(s * kStageBlocks, base + s * Layout::kBytes);
    CommitCopies();
  }
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t band = warp / 2 * kWarpBands;
  const uint32_t row = warp % 2 * (kTileRows / 2);
  WarpSums<kTileRows> sums;
  for (uint32_t step = 0; step < steps; ++step) {
    AwaitCopies<kStages - 2>();
    __syncthreads();  // the stage has arrived; all have left the one that is filled next
    const uint32_t next = step + kStages - 1;
    if (next < steps) copier.Copy(next * kStageBlocks, base + next % kStages * Layout::kBytes);
    CommitCopies();
    const std::byte* stage = stages + step % kStages * Layout::kBytes;
#pragma unroll
    for (uint32_t b = 0; b < kStageBlocks; ++b) {
      if (step * kStageBlocks + b < blocks) sums.Add(stage, b, band, row, lane);
    }
  }
#pragma unroll
  for (uint32_t m = 0; m < kWarpBands; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < WarpSums<kTileRows>::kOctets; ++n) {
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

template <uint32_t kTileRows>
absl::Status Launch(const GemmKernelArgs& args, uint32_t blocks, cudaStream_t stream) {
  constexpr uint32_t kSharedBytes = kStages * StageLayout<kTileRows>::kBytes;
  const auto kernel = GemmQ8Kernel<kTileRows>;
  HEARTH_RETURN_IF_ERROR(AllowSharedBytes(reinterpret_cast<const void*>(kernel), kSharedBytes));
  kernel<<<blocks, kThreads, kSharedBytes, stream>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of a Q8 prompt product");
}

}  // namespace

absl::Status LaunchGemmQ8(std::span<const MatmulOutput> outputs, const DeviceRows& x, uint32_t rows,
                          uint32_t cols, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const GemmTile tile = Q8Tile(rows);
  const GemmTileMap map = MapTiles(outputs, rows, tile);
  const GemmKernelArgs args = GemmKernelArgsOf(outputs, map, x, rows, cols);
  const uint32_t blocks = map.weight_tiles * map.row_tiles;
  return tile.rows == kQ8TileRowsMax ? Launch<kQ8TileRowsMax>(args, blocks, stream.get())
                                     : Launch<kQ8TileRowsMax / 2>(args, blocks, stream.get());
}

}  // namespace hearth
