// Row-major bf16 or fp32 weights times many fp32 rows of x on the bf16 tensor cores. An fp32 value
// is read as the sum of two bf16 values, which is off by at most 2^-18 of it; of two such sums the
// product of both small parts is left out. A block of threads computes 64 outputs of 64 rows: eight
// warps of 32 by 16. Sums of a stage are added up in fp32 outside of the tensor cores, whose own
// addition rounds towards zero.
#include <algorithm>

#include <cuda_bf16.h>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/dense/gemm_kernel.cuh"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarpOctets = 2;  // of rows of x; and 32 outputs
constexpr uint32_t kStages = 4;
constexpr uint32_t kStageCols = 32;
constexpr uint32_t kTile = 64;  // outputs, and rows of x
static_assert(kRowMajorTile.outputs == kTile && kRowMajorTile.rows == kTile);
constexpr uint32_t kFloatLineBytes = kStageCols * 4;

// A stage of shared memory: weights [64][32] as they are, then x [64][32] fp32. Lines of bf16:
// Line64Offset; lines of fp32: FloatOffset.
template <MatrixFormat kFormat>
struct StageLayout {
  static constexpr uint32_t kValueBytes = kFormat == MatrixFormat::kBf16 ? 2 : 4;
  static constexpr uint32_t kX = kTile * kStageCols * kValueBytes;
  static constexpr uint32_t kBytes = kX + kTile * kFloatLineBytes;
};

// Byte offset of 16-byte piece `piece` of a line of 32 floats: four lines that stand beside each
// other have any two neighbouring pieces on different banks.
__device__ inline uint32_t FloatOffset(uint32_t line, uint32_t piece) {
  return line * kFloatLineBytes + (piece ^ (line & 3u) * 2) * 16;
}

// Two fp32 values as two pairs of bf16 whose sum they are.
struct SplitPair {
  uint32_t large;
  uint32_t small;
};
__device__ inline SplitPair Split(float2 v) {
  const __nv_bfloat162 large = __floats2bfloat162_rn(v.x, v.y);
  const float2 rest = {__fsub_rn(v.x, __low2float(large)), __fsub_rn(v.y, __high2float(large))};
  const __nv_bfloat162 small = __floats2bfloat162_rn(rest.x, rest.y);
  return {*reinterpret_cast<const uint32_t*>(&large), *reinterpret_cast<const uint32_t*>(&small)};
}

// Columns 2c, 2c + 1 after `col` of a line of floats.
__device__ inline SplitPair LoadSplit(const std::byte* lines, uint32_t line, uint32_t col,
                                      uint32_t c) {
  return Split(
      *reinterpret_cast<const float2*>(lines + FloatOffset(line, col / 4 + c / 2) + c % 2 * 8));
}

// Sixteen rows of w by sixteen columns; `small` is used for fp32 weights only.
struct WeightParts {
  uint32_t large[4];
  uint32_t small[4];
};

template <MatrixFormat kFormat>
__device__ inline WeightParts LoadWeights(const std::byte* stage, uint32_t row, uint32_t col,
                                          uint32_t lane) {
  WeightParts w;
  if constexpr (kFormat == MatrixFormat::kBf16) {
    LoadMatrices(SharedAddress(stage) + Line64Offset(row + lane % 16, col / 8 + lane / 16),
                 w.large);
  } else {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const SplitPair v = LoadSplit(stage, row + lane / 4 + i % 2 * 8, col + i / 2 * 8, lane % 4);
      w.large[i] = v.large;
      w.small[i] = v.small;
    }
  }
  return w;
}

template <MatrixFormat kFormat>
__device__ void CopyStage(const GemmKernelArgs& args, const KernelOutput& output,
                          uint32_t first_output, uint32_t first_row, uint32_t first_col,
                          uint32_t to) {
  using Layout = StageLayout<kFormat>;
  constexpr uint32_t kPieceCols = 16 / Layout::kValueBytes;
  constexpr uint32_t kPieces = kStageCols / kPieceCols;
#pragma unroll
  for (uint32_t i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const uint32_t n = first_output + i / kPieces;
    const uint32_t col = first_col + i % kPieces * kPieceCols;
    const bool valid = n < output.rows && col < args.cols;
    const size_t from = (size_t{n} * args.cols + col) * Layout::kValueBytes;
    const uint32_t offset = kFormat == MatrixFormat::kBf16 ? Line64Offset(i / kPieces, i % kPieces)
                                                           : FloatOffset(i / kPieces, i % kPieces);
    CopyAheadOrZero16(to + offset, output.w + (valid ? from : 0), valid);
  }
  constexpr uint32_t kFloatPieces = kStageCols / 4;
#pragma unroll
  for (uint32_t i = threadIdx.x; i < kTile * kFloatPieces; i += kThreads) {
    const uint32_t t = first_row + i / kFloatPieces;
    const uint32_t col = first_col + i % kFloatPieces * 4;
    const bool valid = t < args.rows && col < args.cols;
    const size_t from = size_t{t} * args.x.x_stride + col;
    CopyAheadOrZero16(to + Layout::kX + FloatOffset(i / kFloatPieces, i % kFloatPieces),
                      args.x.x + (valid ? from : 0), valid);
  }
}

// 32 outputs by 16 rows of x of a warp: rows of w and of x (g, 2c), (g, 2c + 1), (g + 8, 2c),
// (g + 8, 2c + 1) of each pair of sixteen outputs and eight rows.
struct WarpSums {
  float of[2][kWarpOctets][4] = {};
};

template <MatrixFormat kFormat>
__device__ void AddStage(const std::byte* stage, uint32_t output, uint32_t row, uint32_t lane,
                         WarpSums* sums) {
  WarpSums stage_sums;
#pragma unroll
  for (uint32_t col = 0; col < kStageCols; col += 16) {
    WeightParts w[2];
#pragma unroll
    for (uint32_t m = 0; m < 2; ++m) w[m] = LoadWeights<kFormat>(stage, output + m * 16, col, lane);
#pragma unroll
    for (uint32_t n = 0; n < kWarpOctets; ++n) {
      const std::byte* x = stage + StageLayout<kFormat>::kX;
      const SplitPair b0 = LoadSplit(x, row + n * 8 + lane / 4, col, lane % 4);
      const SplitPair b1 = LoadSplit(x, row + n * 8 + lane / 4, col + 8, lane % 4);
#pragma unroll
      for (uint32_t m = 0; m < 2; ++m) {
        float(&sum)[4] = stage_sums.of[m][n];
        MultiplyAddBf16(w[m].large, b0.small, b1.small, sum);
        if constexpr (kFormat == MatrixFormat::kF32) {
          MultiplyAddBf16(w[m].small, b0.large, b1.large, sum);
        }
        MultiplyAddBf16(w[m].large, b0.large, b1.large, sum);
      }
    }
  }
#pragma unroll
  for (uint32_t m = 0; m < 2; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kWarpOctets; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        sums->of[m][n][i] = __fadd_rn(sums->of[m][n][i], stage_sums.of[m][n][i]);
      }
    }
  }
}

template <MatrixFormat kFormat>
__device__ void ComputeTile(const GemmKernelArgs& args, const KernelOutput& output,
                            uint32_t first_output, uint32_t first_row, uint4* shared) {
  using Layout = StageLayout<kFormat>;
  const auto* stages = reinterpret_cast<const std::byte*>(shared);
  const uint32_t base = SharedAddress(shared);
  const uint32_t steps = (args.cols + kStageCols - 1) / kStageCols;
  const auto copy = [&](uint32_t step) {
    if (step < steps) {
      CopyStage<kFormat>(args, output, first_output, first_row, step * kStageCols,
                         base + step % kStages * Layout::kBytes);
    }
    CommitCopies();
  };
  for (uint32_t s = 0; s < kStages - 1; ++s) copy(s);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t output_in_tile = warp / 4 * 32;
  const uint32_t row_in_tile = warp % 4 * (kWarpOctets * 8);
  WarpSums sums;
  for (uint32_t step = 0; step < steps; ++step) {
    AwaitCopies<kStages - 2>();
    __syncthreads();  // the stage has arrived; all have left the one that is filled next
    copy(step + kStages - 1);
    AddStage<kFormat>(stages + step % kStages * Layout::kBytes, output_in_tile, row_in_tile, lane,
                      &sums);
  }
#pragma unroll
  for (uint32_t m = 0; m < 2; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kWarpOctets; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row_of_w = first_output + output_in_tile + m * 16 + i / 2 * 8 + lane / 4;
        const uint32_t row_of_x = first_row + row_in_tile + n * 8 + lane % 4 * 2 + i % 2;
        if (row_of_w >= output.rows || row_of_x >= args.rows) continue;
        output.y[size_t{row_of_x} * output.y_stride + row_of_w] =
            Activate(output, sums.of[m][n][i]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    GemmRowMajorKernel(const __grid_constant__ GemmKernelArgs args) {
  extern __shared__ uint4 shared[];
  const uint32_t tile = blockIdx.x / args.row_tiles;
  const uint32_t first_row = blockIdx.x % args.row_tiles * kTile;
  const KernelOutput& output = args.outputs[OutputOf(args.outputs, 0, args.output_count, tile)];
  const uint32_t first_output = (tile - output.first_unit) * kTile;
  if (output.format == MatrixFormat::kBf16) {
    ComputeTile<MatrixFormat::kBf16>(args, output, first_output, first_row, shared);
  } else {
    ComputeTile<MatrixFormat::kF32>(args, output, first_output, first_row, shared);
  }
}

}  // namespace

absl::Status LaunchGemmRowMajor(std::span<const MatmulOutput> outputs, const DeviceRows& x,
                                uint32_t rows, uint32_t cols, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const GemmTileMap map = MapTiles(outputs, rows, kRowMajorTile);
  const bool has_fp32 = std::any_of(outputs.begin(), outputs.end(), [](const MatmulOutput& o) {
    return o.w.format == MatrixFormat::kF32;
  });
  const uint32_t shared_bytes = kStages * (has_fp32 ? StageLayout<MatrixFormat::kF32>::kBytes
                                                    : StageLayout<MatrixFormat::kBf16>::kBytes);
  HEARTH_RETURN_IF_ERROR(
      AllowSharedBytes(reinterpret_cast<const void*>(GemmRowMajorKernel), shared_bytes));
  GemmRowMajorKernel<<<map.weight_tiles * map.row_tiles, kThreads, shared_bytes, stream.get()>>>(
      GemmKernelArgsOf(outputs, map, x, rows, cols));
  return CudaStatus(cudaGetLastError(), "launch of a row-major prompt product");
}

}  // namespace hearth
