// The kernels of gpu_kernels/ops/prompt/expert_gemm.h, for every architecture with mma.m16n8k16 and
// cp.async (sm_80 and later).
#include "gpu_kernels/ops/prompt/expert_gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/prompt/gemm_tile.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = kGemmWarps * 32;
constexpr uint32_t kStages = 4;
constexpr uint32_t kColumnBytes = kGemmBlockValues * 2;  // of one column and block of x

struct HalfRows {  // (rows, blocks): 32 values as gemm_tile.cuh orders them, and scale * 128
  std::byte* values;
  float* scale;
};

struct KernelArgs {
  const ExpertFfnItem* items;
  const ExpertFfnEntry* entries;
  const ExpertGemmTile* tiles;
  HalfRows x;  // of this product
  HalfRows h;  // gate and up write it
  float* y;
  uint32_t y_stride;
  uint32_t cols;        // reduction length
  uint32_t outputs;     // of each projection
  uint32_t band_count;  // of each projection of this product
  uint64_t band_bytes;
  uint64_t projection_offset_bytes[2];
  uint64_t multiplier_offset_bytes[2];
};

__device__ inline void CopyAsync16(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes));
}
__device__ inline void CopyAsync4(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes));
}

// Where value `index` of a block of 32 stands in the order of gemm_tile.cuh.
__device__ inline uint32_t PositionOf(uint32_t index) {
  const uint32_t in_line = index % 8;
  const uint32_t t = index / 8 % 2 * 2 + in_line % 2;
  return t * 8 + index / 16 * 4 + in_line / 2;
}

template <int kTiles>
struct Stage {
  std::byte x[kGemmStageBlocks][kTiles * 8][kColumnBytes];
  float scale[kGemmStageBlocks][kTiles * 8];
  std::byte bands[kGemmWarps][kGemmBandBytes];
};

// Where a warp's band is; a warp without one copies zeros.
struct Band {
  const std::byte* bytes;
  bool there;
};

// Copies stage `s` of the reduction: every thread its share of the columns, every warp its band.
template <int kTiles>
__device__ void CopyStage(const KernelArgs& args, const Band& band, const uint32_t* row_of,
                          uint32_t columns, uint32_t s, Stage<kTiles>& stage) {
  const uint32_t blocks = (args.cols + kGemmBlockValues - 1) / kGemmBlockValues;
  const uint32_t first = s * kGemmStageBlocks;
  constexpr uint32_t kColumnParts = kColumnBytes / 16;
  constexpr uint32_t kParts = kTiles * 8 * kGemmStageBlocks * kColumnParts;
  for (uint32_t i = threadIdx.x; i < kParts; i += kThreads) {
    const uint32_t part = i % kColumnParts;
    const uint32_t block = i / kColumnParts % kGemmStageBlocks;
    const uint32_t column = i / kColumnParts / kGemmStageBlocks;
    const bool there = column < columns && first + block < blocks;
    const size_t at = there ? size_t{row_of[column]} * blocks + first + block : 0;
    CopyAsync16(&stage.x[block][column][part * 16], args.x.values + at * kColumnBytes + part * 16,
                there ? 16 : 0);
  }
  for (uint32_t i = threadIdx.x; i < kTiles * 8 * kGemmStageBlocks; i += kThreads) {
    const uint32_t block = i % kGemmStageBlocks;
    const uint32_t column = i / kGemmStageBlocks;
    const bool there = column < columns && first + block < blocks;
    const size_t at = there ? size_t{row_of[column]} * blocks + first + block : 0;
    CopyAsync4(&stage.scale[block][column], args.x.scale + at, there ? 4 : 0);
  }
  const uint32_t sub_blocks = args.cols / kNvfp4BlockValues;
  const uint32_t lane = threadIdx.x % 32;
  std::byte* const to = stage.bands[threadIdx.x / 32];
  {  // a sub-block is two lines of four parts
    const uint32_t sub_block = first * 2 + lane / 8;
    const bool there = band.there && sub_block < sub_blocks;
    CopyAsync16(to + lane * 16, band.bytes + (there ? size_t{sub_block} * 128 + lane % 8 * 16 : 0),
                there ? 16 : 0);
  }
  if (lane < kGemmStageBlocks * 2) {
    const uint32_t sub_block = first * 2 + lane;
    const bool there = band.there && sub_block < sub_blocks;
    CopyAsync16(to + kGemmCodeBytes + lane * 16,
                band.bytes + (there ? size_t{args.cols} * 8 + size_t{sub_block} * kBandRows : 0),
                there ? 16 : 0);
  }
}

// The whole reduction of the warp's band over the tile's columns.
template <int kTiles>
__device__ void MultiplyBand(const KernelArgs& args, const Band& band, const uint32_t* row_of,
                             uint32_t columns, Stage<kTiles>* stages, BandSums<kTiles>& sums) {
  const uint32_t blocks = (args.cols + kGemmBlockValues - 1) / kGemmBlockValues;
  const uint32_t stage_count = (blocks + kGemmStageBlocks - 1) / kGemmStageBlocks;
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < stage_count) CopyStage<kTiles>(args, band, row_of, columns, s, stages[s]);
    asm volatile("cp.async.commit_group;");
  }
  sums.Clear();
  uint32_t left = kGemmSegmentBlocks;  // of the segment
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t s = 0; s < stage_count; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();  // the stage is there, and the one before it has been read
    const uint32_t ahead = s + kStages - 1;
    if (ahead < stage_count) {
      CopyStage<kTiles>(args, band, row_of, columns, ahead, stages[ahead % kStages]);
    }
    asm volatile("cp.async.commit_group;");
    const Stage<kTiles>& stage = stages[s % kStages];
#pragma unroll
    for (uint32_t block = 0; block < kGemmStageBlocks; ++block) {
      if (s * kGemmStageBlocks + block >= blocks) break;
      AddBlock<kTiles>(stage.bands[threadIdx.x / 32], block, &stage.x[block][0][0],
                       stage.scale[block], lane, sums);
      if (--left == 0) {
        sums.EndSegment();
        left = kGemmSegmentBlocks;
      }
    }
  }
  if (left != kGemmSegmentBlocks) sums.EndSegment();
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();  // shared memory may be used for something else
}

// Calls visit(row of the band, column of the tile, total) for what this lane holds.
template <int kTiles, class Visit>
__device__ inline void ForEachTotal(const BandSums<kTiles>& sums, Visit&& visit) {
  const uint32_t g = threadIdx.x % 32 / 4;
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const uint32_t column = n * 8 + t * 2;
    visit(g, column, sums.total[n].x);
    visit(g, column + 1, sums.total[n].y);
    visit(g + 8, column, sums.total[n].z);
    visit(g + 8, column + 1, sums.total[n].w);
  }
}

__device__ inline float MultiplierOf(const KernelArgs& args, const std::byte* blob,
                                     int projection) {
  return *reinterpret_cast<const float*>(blob + args.multiplier_offset_bytes[projection]);
}

constexpr uint32_t kGateBands = kGemmWarps / 2;  // of one block of threads; as many of up

// grid: (groups of kGateBands bands, tiles). Warps 0 to 3 multiply gate, 4 to 7 up; both leave
// their totals in shared memory, where h is formed and quantised.
template <int kTiles>
__global__ void __launch_bounds__(kThreads)
    GateUpKernel(const KernelArgs args, uint32_t tile_begin) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t row_of[kTiles * 8];
  const ExpertGemmTile tile = args.tiles[tile_begin + blockIdx.y];
  const std::byte* const blob = args.items[tile.item].blob;
  for (uint32_t c = threadIdx.x; c < tile.columns; c += kThreads) {
    row_of[c] = args.entries[tile.entry_begin + c].x_row;
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t projection = warp / kGateBands;
  const uint32_t band = blockIdx.x * kGateBands + warp % kGateBands;
  const bool there = band < args.band_count;
  const Band bytes{
      blob + args.projection_offset_bytes[projection] + (there ? band * args.band_bytes : 0),
      there};
  BandSums<kTiles> sums;
  MultiplyBand<kTiles>(args, bytes, row_of, tile.columns, reinterpret_cast<Stage<kTiles>*>(shared),
                       sums);

  auto* const totals = reinterpret_cast<float*>(shared);  // (projection, 64 rows, columns + 1)
  constexpr uint32_t kColumnStride = kTiles * 8 + 1;
  ForEachTotal<kTiles>(sums, [&](uint32_t row, uint32_t column, float total) {
    totals[(warp * kBandRows + row) * kColumnStride + column] = total;
  });
  __syncthreads();
  const float gate_multiplier = MultiplierOf(args, blob, 0);
  const float up_multiplier = MultiplierOf(args, blob, 1);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t h_blocks = (args.band_count + 1) / 2;
  for (uint32_t job = warp; job < tile.columns * 2; job += kGemmWarps) {
    const uint32_t column = job / 2;
    const uint32_t row = job % 2 * 32 + lane;
    const bool valid = blockIdx.x * kGateBands + row / kBandRows < args.band_count;
    const float gate = __fmul_rn(totals[row * kColumnStride + column], gate_multiplier);
    const float up =
        __fmul_rn(totals[(kGateBands * kBandRows + row) * kColumnStride + column], up_multiplier);
    const QuantizedLane quantized = QuantizeLane(__fmul_rn(SiluOf(gate), up), valid);
    const uint32_t h_block = blockIdx.x * 2 + job % 2;
    if (h_block >= h_blocks) continue;  // the same for the whole warp
    const size_t at = size_t{tile.entry_begin + column} * h_blocks + h_block;
    reinterpret_cast<__half*>(args.h.values + at * kColumnBytes)[PositionOf(lane)] =
        __int2half_rn(quantized.q);
    if (lane == 0) args.h.scale[at] = __fmul_rn(quantized.scale, kGemmScaleFactor);
  }
}

// grid: (groups of kGemmWarps bands, tiles).
template <int kTiles>
__global__ void __launch_bounds__(kThreads) DownKernel(const KernelArgs args, uint32_t tile_begin) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t row_of[kTiles * 8];
  __shared__ uint32_t y_row_of[kTiles * 8];
  const ExpertGemmTile tile = args.tiles[tile_begin + blockIdx.y];
  const std::byte* const blob = args.items[tile.item].blob;
  for (uint32_t c = threadIdx.x; c < tile.columns; c += kThreads) {
    row_of[c] = tile.entry_begin + c;
    y_row_of[c] = args.entries[tile.entry_begin + c].y_row;
  }
  __syncthreads();
  const uint32_t band = blockIdx.x * kGemmWarps + threadIdx.x / 32;
  const bool there = band < args.band_count;
  const Band bytes{blob + args.projection_offset_bytes[0] + (there ? band * args.band_bytes : 0),
                   there};
  BandSums<kTiles> sums;
  MultiplyBand<kTiles>(args, bytes, row_of, tile.columns, reinterpret_cast<Stage<kTiles>*>(shared),
                       sums);
  if (!there) return;
  const float multiplier = MultiplierOf(args, blob, 0);
  ForEachTotal<kTiles>(sums, [&](uint32_t row, uint32_t column, float total) {
    const uint32_t output = band * kBandRows + row;
    if (column >= tile.columns || output >= args.outputs) return;
    args.y[size_t{y_row_of[column]} * args.y_stride + output] = __fmul_rn(total, multiplier);
  });
}

// One warp for each (row, block of 32): int8 to fp16 in the order of the products.
__global__ void RowsKernel(const int8_t* q, const float* scale, uint32_t block_count, HalfRows to) {
  const uint32_t at = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (at >= block_count) return;
  const uint32_t lane = threadIdx.x % 32;
  reinterpret_cast<__half*>(to.values + size_t{at} * kColumnBytes)[PositionOf(lane)] =
      __int2half_rn(q[size_t{at} * kActivationBlockValues + lane]);
  if (lane == 0) to.scale[at] = __fmul_rn(scale[at], kGemmScaleFactor);
}

using Kernel = void (*)(KernelArgs, uint32_t);

enum class Product { kGateUp, kDown };

template <Product kProduct, int kTiles>
absl::Status Enqueue(const KernelArgs& args, uint32_t tile_begin, uint32_t tile_end,
                     cudaStream_t stream) {
  if (tile_begin == tile_end) return absl::OkStatus();
  constexpr bool kGateUp = kProduct == Product::kGateUp;
  constexpr uint32_t kBands = kGateUp ? kGateBands : kGemmWarps;
  const uint32_t totals_bytes =
      kGateUp ? kGemmWarps * kBandRows * (kTiles * 8 + 1) * uint32_t{sizeof(float)} : 0;
  const uint32_t bytes = std::max<uint32_t>(kStages * sizeof(Stage<kTiles>), totals_bytes);
  const Kernel kernel = kGateUp ? GateUpKernel<kTiles> : DownKernel<kTiles>;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(bytes)),
                 absl::StrCat("prompt product with ", bytes, " bytes of shared memory").c_str()));
  const dim3 grid((args.band_count + kBands - 1) / kBands, tile_end - tile_begin);
  kernel<<<grid, kThreads, bytes, stream>>>(args, tile_begin);
  return CudaStatus(cudaGetLastError(), "launch of a prompt product");
}

template <Product kProduct>
absl::Status EnqueueClasses(const KernelArgs& args, const ExpertGemmTiles& cut,
                            cudaStream_t stream) {
  const uint32_t* const begin = cut.class_begin;
  HEARTH_RETURN_IF_ERROR((Enqueue<kProduct, 12>(args, begin[3], begin[4], stream)));
  HEARTH_RETURN_IF_ERROR((Enqueue<kProduct, 8>(args, begin[2], begin[3], stream)));
  HEARTH_RETURN_IF_ERROR((Enqueue<kProduct, 4>(args, begin[1], begin[2], stream)));
  return Enqueue<kProduct, 2>(args, begin[0], begin[1], stream);
}

HalfRows XRows(const ExpertGemmPlan& plan, std::byte* workspace) {
  return {workspace, reinterpret_cast<float*>(workspace + plan.x_scale_offset_bytes)};
}
HalfRows HRows(const ExpertGemmPlan& plan, std::byte* workspace) {
  return {workspace + plan.h_offset_bytes,
          reinterpret_cast<float*>(workspace + plan.h_scale_offset_bytes)};
}

}  // namespace

absl::Status LaunchExpertGemmRows(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan,
                                  const ExpertGemmArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t blocks = desc.row_count * ActivationBlocks(desc.layout.hidden);
  RowsKernel<<<(blocks + kGemmWarps - 1) / kGemmWarps, kThreads, 0, stream.get()>>>(
      args.q, args.scale, blocks, XRows(plan, args.workspace));
  return CudaStatus(cudaGetLastError(), "launch of a prompt product's rows");
}

absl::Status LaunchExpertGemm(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan,
                              const ExpertGemmTiles& cut, const ExpertGemmArgs& args,
                              CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const ExpertLayout& layout = desc.layout;
  KernelArgs common = {};
  common.items = args.items;
  common.entries = args.entries;
  common.tiles = args.tiles;
  common.y = args.y;
  common.y_stride = args.y_stride;
  const auto add_projection = [&](KernelArgs& kernel_args, int index, Projection p) {
    kernel_args.cols = layout.cols(p);
    kernel_args.outputs = layout.rows(p);
    kernel_args.band_count = BandCount(layout.rows(p));
    kernel_args.band_bytes = layout.band_bytes(p);
    kernel_args.projection_offset_bytes[index] = layout.projection_offset_bytes(p);
    kernel_args.multiplier_offset_bytes[index] = layout.scale_offset_bytes(p);
  };
  KernelArgs gate_up = common;
  gate_up.x = XRows(plan, args.workspace);
  gate_up.h = HRows(plan, args.workspace);
  add_projection(gate_up, 0, Projection::kGate);
  add_projection(gate_up, 1, Projection::kUp);
  HEARTH_RETURN_IF_ERROR(EnqueueClasses<Product::kGateUp>(gate_up, cut, stream.get()));
  KernelArgs down = common;
  down.x = HRows(plan, args.workspace);
  add_projection(down, 0, Projection::kDown);
  return EnqueueClasses<Product::kDown>(down, cut, stream.get());
}

}  // namespace hearth
