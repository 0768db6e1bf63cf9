// The kernel of gated_mix.h. A block of threads makes 32 columns of u, which are one quantised
// block: two bands of the matrix for each stream, a warp for each. Weights and normalised streams
// are on their way before the launch before has ended; each block quantises the low-rank values for
// itself.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/dense/band_products.cuh"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "gpu_kernels/ops/mixer/gated_mix.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kTileBands = 2;
constexpr uint32_t kTileColumns = kTileBands * kBandRows;
constexpr uint32_t kThreadsMax = kGatedMixStreamsMax * kTileBands * kWarpLanes;
static_assert(kTileColumns == kActivationBlockValues);

template <uint32_t kRows>
constexpr uint32_t kPaddedRowsOf = kRows <= kTensorRows ? kTensorRows : 2 * kTensorRows;
constexpr uint32_t PaddedRows(uint32_t rows) {
  return rows <= kTensorRows ? kTensorRows : kMatmulRowsMax;
}
// Classes of row counts, for which kernels are compiled.
constexpr uint32_t RowsClass(uint32_t rows) {
  return rows == 1 ? 1 : rows <= 4 ? 4 : PaddedRows(rows);
}

struct SharedLayout {
  uint32_t quads;  // of a band
  uint32_t rows_offset_bytes;
  uint32_t scales_offset_bytes;
  uint32_t gates_offset_bytes;
  uint32_t bytes;
};

SharedLayout LayOut(const GpuGatedMixArgs& args) {
  const uint32_t blocks = args.up.cols / kQ8BlockValues;
  SharedLayout layout = {};
  layout.quads = (blocks + kQuadBlocks - 1) / kQuadBlocks;
  layout.rows_offset_bytes = args.streams * kTileBands * layout.quads * kMatmulSlotBytes;
  layout.scales_offset_bytes =
      layout.rows_offset_bytes + blocks * RowsClass(args.rows) * kQ8BlockValues;
  layout.gates_offset_bytes = layout.scales_offset_bytes + blocks * PaddedRows(args.rows) * 4;
  layout.bytes = layout.gates_offset_bytes + args.streams * args.rows * kTileColumns * 4;
  return layout;
}

// The low-rank values, quantised and laid out as StagedRows: eight lanes for each block of a row.
template <int kRows>
__device__ void QuantizeLow(const GpuGatedMixArgs& args, uint32_t* q, float* scale) {
  constexpr uint32_t kPaddedRows = kPaddedRowsOf<kRows>;
  const uint32_t blocks = args.up.cols / kQ8BlockValues;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t count = blocks * kRows * kBlockVectors;
  if (kRows != kPaddedRows || args.rows != kRows) {
    for (uint32_t i = threadIdx.x; i < blocks * kPaddedRows; i += blockDim.x) {
      if (i % kPaddedRows >= args.rows) scale[i] = 0;
    }
  }
#pragma unroll 3
  for (uint32_t begin = threadIdx.x - lane; begin < count; begin += blockDim.x) {
    const uint32_t i = begin + lane;
    const uint32_t row = i / kBlockVectors % kRows;
    const uint32_t block = i / kBlockVectors / kRows;
    const uint32_t vector = i % kBlockVectors;
    const bool there = i < count && row < args.rows;
    const float4 x =
        there ? LoadVector(args.low, (size_t{row} * blocks + block) * kBlockVectors + vector)
              : float4{0, 0, 0, 0};
    const QuantizedVector quantized = QuantizeVector(x);
    if (i >= count || row >= args.rows) continue;
    const uint32_t half = vector / 4 * 4 ^ WordOfRow(row);
    *reinterpret_cast<char4*>(q + (block * kRows + row) * 8 + half + vector % 4) = quantized.q;
    if (vector == 0) scale[block * kPaddedRows + row] = quantized.scale;
  }
}

// Of one column of one row, in each stream.
struct StreamValues {
  float of[kGatedMixStreamsMax];
};

// Past the first cache, which may hold what stood there before.
__device__ inline StreamValues LoadStreams(const GpuGatedMixArgs& args, uint32_t row,
                                           uint32_t column) {
  StreamValues values;
#pragma unroll
  for (uint32_t s = 0; s < kGatedMixStreamsMax; ++s) {
    const size_t at = (size_t{row} * args.streams + s) * args.hidden + column;
    values.of[s] = s < args.streams && row < args.rows ? __ldcg(args.hn + at) : 0;
  }
  return values;
}

// u of one column of one row. `gates`: [stream][band][row][16].
__device__ inline float MixStreams(const GpuGatedMixArgs& args, const float* gates, uint32_t row,
                                   uint32_t lane, const StreamValues& hn) {
  float gate[kGatedMixStreamsMax];
#pragma unroll
  for (uint32_t s = 0; s < kGatedMixStreamsMax; ++s) {
    if (s >= args.streams) break;
    const uint32_t band = s * kTileBands + lane / kBandRows;
    gate[s] = SigmoidOf(gates[(band * args.rows + row) * kBandRows + lane % kBandRows]);
  }
  float u = 0;
#pragma unroll
  for (uint32_t s = 0; s < kGatedMixStreamsMax; ++s) {
    if (s >= args.streams) break;
    u = __fmaf_rn(gate[s], hn.of[s], u);
  }
  return __fmul_rn(u, 1.0f / static_cast<float>(args.streams));
}

// Block: 32 columns.
template <int kRows>
__global__ void __launch_bounds__(kThreadsMax)
    GatedMixKernel(const __grid_constant__ GpuGatedMixArgs args, const SharedLayout layout) {
  constexpr int kGroups = static_cast<int>(kPaddedRowsOf<kRows> / kTensorRows);
  extern __shared__ uint4 shared[];
  auto* bytes = reinterpret_cast<std::byte*>(shared);
  const uint32_t warp = threadIdx.x / kWarpLanes;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t blocks = args.up.cols / kQ8BlockValues;
  const uint32_t band =
      (warp / kTileBands * (args.hidden / kTileColumns) + blockIdx.x) * kTileBands +
      warp % kTileBands;
  std::byte* const slots = bytes + warp * layout.quads * kMatmulSlotBytes;
  for (uint32_t quad = 0; quad < layout.quads; ++quad) {
    CopyQuad(args.up.data + size_t{band} * blocks * (kBlockCodeBytes + kBlockScaleBytes), blocks,
             quad * kQuadBlocks, lane, SharedAddress(slots) + quad * kMatmulSlotBytes);
  }
  CommitCopies();
  const uint32_t column = blockIdx.x * kTileColumns + lane;
  auto* const q = reinterpret_cast<uint32_t*>(bytes + layout.rows_offset_bytes);
  auto* const scale = reinterpret_cast<float*>(bytes + layout.scales_offset_bytes);
  auto* const gates = reinterpret_cast<float*>(bytes + layout.gates_offset_bytes);
  StreamValues hn = LoadStreams(args, warp, column);
  AwaitLaunchBefore();
  QuantizeLow<kRows>(args, q, scale);
  AwaitCopies<0>();
  __syncthreads();
  AllowLaunchAfter();
  const StagedRows x = {q, scale};
  BandSums<kGroups> sums = {};
  for (uint32_t quad = 0; quad < layout.quads; ++quad) {
#pragma unroll
    for (uint32_t i = 0; i < kQuadBlocks; ++i) {
      if (quad * kQuadBlocks + i >= blocks) break;
      AddBlock<kRows>(slots + quad * kMatmulSlotBytes, i, x, quad * kQuadBlocks + i, lane, &sums);
    }
  }
  StoreSums<kGroups>(args.rows, lane, sums, gates + warp * args.rows * kBandRows);
  __syncthreads();
  for (uint32_t row = warp; row < args.rows; row += blockDim.x / kWarpLanes) {
    if (row != warp) hn = LoadStreams(args, row, column);
    const float u = MixStreams(args, gates, row, lane, hn);
    const size_t at = size_t{row} * args.hidden + column;
    args.u[at] = u;
    if (args.u_quantized.q != nullptr) StoreQuantizedLane(args.u_quantized, at, u);
  }
}

}  // namespace

bool TakesGatedMix(const DeviceMatrix& up, uint32_t streams) {
  return up.format == MatrixFormat::kQ8 && up.cols > 0 && up.cols <= kGatedMixRankMax &&
         up.cols % kQ8BlockValues == 0 && streams > 0 && streams <= kGatedMixStreamsMax &&
         up.rows > 0 && up.rows % (streams * kTileColumns) == 0;
}

absl::Status LaunchGatedMix(const GpuGatedMixArgs& args, CudaStreamView stream) {
  if (!TakesGatedMix(args.up, args.streams) || args.up.rows != args.streams * args.hidden ||
      args.rows == 0 || args.rows > kMatmulRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gated mix: 1 to ", kMatmulRowsMax, " rows and a Q8 matrix of streams * hidden (a multiple",
        " of ", kTileColumns, ") rows and at most ", kGatedMixRankMax, " columns, for 1 to ",
        kGatedMixStreamsMax, " streams; found ", args.rows, " rows, ", args.up.rows, " x ",
        args.up.cols, ", ", args.streams, " streams of ", args.hidden));
  }
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const SharedLayout layout = LayOut(args);
  const uint32_t rows_class = RowsClass(args.rows);
  const auto kernel = rows_class == 1             ? GatedMixKernel<1>
                      : rows_class == 4           ? GatedMixKernel<4>
                      : rows_class == kTensorRows ? GatedMixKernel<8>
                                                  : GatedMixKernel<16>;
  HEARTH_RETURN_IF_ERROR(AllowSharedBytes(reinterpret_cast<const void*>(kernel), layout.bytes));
  return LaunchOverlapping("launch of a gated mix", kernel,
                           {.blocks = args.hidden / kTileColumns,
                            .threads = args.streams * kTileBands * kWarpLanes,
                            .shared_bytes = layout.bytes},
                           stream, args, layout);
}

}  // namespace hearth
