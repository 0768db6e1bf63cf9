// The kernels of gpu_kernels/ops/prompt/expert_gemm.h, for every architecture with mma.m16n8k16 and
// cp.async (sm_80 and later).
#include "gpu_kernels/ops/prompt/expert_gemm.h"

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/prompt/gemm_tile.cuh"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = kGemmWarps * 32;
constexpr uint32_t kStages = 3;
constexpr uint32_t kBands = kGemmWarps * kGemmWarpBands;  // of one block of threads
constexpr uint32_t kColumnBytes = kGemmBlockValues * 2;   // of one column and block of x

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
  uint64_t projection_offset_bytes;  // of gate or down
  uint64_t projection_bytes;         // up follows gate
  uint64_t multiplier_offset_bytes;  // of gate or down
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
  std::byte bands[kBands][kGemmBandBytes];
};

// Where a warp's bands are, one after the other; what it lacks of them is copied as zeros.
struct Bands {
  const std::byte* bytes;
  uint32_t count;
};

// Copies stage after stage of the reduction: every thread its share of the columns, every warp its
// bands.
template <int kTiles>
class StageCopies {
 public:
  __device__ StageCopies(const KernelArgs& args, const Bands& bands, const uint32_t* row_of,
                         uint32_t columns)
      : blocks_((args.cols + kGemmBlockValues - 1) / kGemmBlockValues),
        sub_blocks_(args.cols / kNvfp4BlockValues),
        band_count_(bands.count),
        band_bytes_(args.band_bytes) {
    const uint32_t lane = threadIdx.x % 32;
    block_ = threadIdx.x / kColumnParts % kGemmStageBlocks;
#pragma unroll
    for (uint32_t i = 0; i < kPartsPerThread; ++i) {
      const uint32_t column = threadIdx.x / kColumnParts / kGemmStageBlocks + i * kColumnStep;
      there_[i] = column < columns;
      const size_t at = there_[i] ? size_t{row_of[column]} * blocks_ + block_ : 0;
      x_[i] = args.x.values + at * kColumnBytes + threadIdx.x % kColumnParts * 16;
    }
    const uint32_t column = threadIdx.x / kGemmStageBlocks;
    scale_there_ = column < columns;
    scale_ = args.x.scale;
    if (scale_there_) scale_ += size_t{row_of[column]} * blocks_ + threadIdx.x % kGemmStageBlocks;
    codes_ = bands.bytes + lane * 16;
    // Lanes 0 to 3 copy the scales of the first band, 4 to 7 those of the second.
    scales_ = bands.bytes + size_t{args.cols} * 8 + lane % 4 * kBandRows;
    if (lane / 4 < band_count_) scales_ += lane / 4 * band_bytes_;
  }

  // Stage `s` into its place; stages in order.
  __device__ void Copy(uint32_t s, Stage<kTiles>& stage) {
    const bool block_there = s * kGemmStageBlocks + block_ < blocks_;
    std::byte* const to = &stage.x[block_][threadIdx.x / kColumnParts / kGemmStageBlocks]
                                  [threadIdx.x % kColumnParts * 16];
#pragma unroll
    for (uint32_t i = 0; i < kPartsPerThread; ++i) {
      if (threadIdx.x / kColumnParts / kGemmStageBlocks + i * kColumnStep >= kTiles * 8) break;
      const bool there = there_[i] && block_there;
      CopyAsync16(to + i * kColumnStep * kColumnBytes, there ? x_[i] : x_[0], there ? 16 : 0);
      x_[i] += kGemmStageBlocks * kColumnBytes;
    }
    if (threadIdx.x < kTiles * 8 * kGemmStageBlocks) {
      const uint32_t block = threadIdx.x % kGemmStageBlocks;
      const bool there = scale_there_ && s * kGemmStageBlocks + block < blocks_;
      CopyAsync4(&stage.scale[block][threadIdx.x / kGemmStageBlocks],
                 scale_ + (there ? s * kGemmStageBlocks : 0), there ? 4 : 0);
    }
    const uint32_t lane = threadIdx.x % 32;
    std::byte* const to_band = stage.bands[threadIdx.x / 32 * kGemmWarpBands];
    const uint32_t first = s * kGemmStageBlocks * 2;
#pragma unroll
    for (uint32_t i = 0; i < kGemmWarpBands; ++i) {  // a sub-block is two lines of four parts
      const bool there = i < band_count_ && first + lane / 8 < sub_blocks_;
      CopyAsync16(to_band + i * kGemmBandBytes + lane * 16,
                  codes_ + (there ? i * band_bytes_ + first * 128 : 0), there ? 16 : 0);
    }
    if (lane < kGemmWarpBands * 4) {
      const bool there = lane / 4 < band_count_ && first + lane % 4 < sub_blocks_;
      CopyAsync16(to_band + lane / 4 * kGemmBandBytes + kGemmCodeBytes + lane % 4 * 16,
                  scales_ + (there ? first * kBandRows : 0), there ? 16 : 0);
    }
  }

 private:
  static constexpr uint32_t kColumnParts = kColumnBytes / 16;
  static constexpr uint32_t kColumnStep = kThreads / kColumnParts / kGemmStageBlocks;
  static constexpr uint32_t kPartsPerThread = (kTiles * 8 + kColumnStep - 1) / kColumnStep;
  static_assert(kTiles * 8 * kGemmStageBlocks <= kThreads);

  uint32_t blocks_;
  uint32_t sub_blocks_;
  uint32_t band_count_;
  uint64_t band_bytes_;
  uint32_t block_;
  const std::byte* x_[kPartsPerThread];
  bool there_[kPartsPerThread];
  const float* scale_;
  bool scale_there_;
  const std::byte* codes_;
  const std::byte* scales_;
};

// Shared memory of a block of threads.
template <int kTiles>
struct Shared {
  Stage<kTiles> stages[kStages];
  float4 totals[kBands][kTiles][32];
};

// The whole reduction of the warp's bands over the tile's columns, into shared.totals.
template <int kTiles>
__device__ void MultiplyBands(const KernelArgs& args, const Bands& bands, const uint32_t* row_of,
                              uint32_t columns, Shared<kTiles>& shared) {
  const uint32_t blocks = (args.cols + kGemmBlockValues - 1) / kGemmBlockValues;
  const uint32_t stage_count = (blocks + kGemmStageBlocks - 1) / kGemmStageBlocks;
  StageCopies<kTiles> copies(args, bands, row_of, columns);
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < stage_count) copies.Copy(s, shared.stages[s]);
    asm volatile("cp.async.commit_group;");
  }
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t tiles = (columns + 7) / 8;
  const uint32_t first_band = threadIdx.x / 32 * kGemmWarpBands;
  BandSums<kTiles> sums(&shared.totals[first_band][0][lane]);
  uint32_t left = kGemmSegmentBlocks;  // of the segment
  for (uint32_t s = 0; s < stage_count; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();  // the stage is there, and the one before it has been read
    const uint32_t ahead = s + kStages - 1;
    if (ahead < stage_count) copies.Copy(ahead, shared.stages[ahead % kStages]);
    asm volatile("cp.async.commit_group;");
    const Stage<kTiles>& stage = shared.stages[s % kStages];
#pragma unroll
    for (uint32_t block = 0; block < kGemmStageBlocks; ++block) {
      if (s * kGemmStageBlocks + block >= blocks) break;
      AddBlock<kTiles>(stage.bands[first_band], block, &stage.x[block][0][0], stage.scale[block],
                       tiles, lane, sums);
    }
    left -= kGemmStageBlocks;  // a segment is whole stages
    if (left == 0) {
      sums.EndSegment();
      left = kGemmSegmentBlocks;
    }
  }
  if (left != kGemmSegmentBlocks) sums.EndSegment();
  asm volatile("cp.async.wait_group 0;");
}

// The total of a row of all bands and a column of the tile.
template <int kTiles>
__device__ inline float TotalOf(const Shared<kTiles>& shared, uint32_t row, uint32_t column) {
  const float4& total = shared.totals[row / kBandRows][column / 8][row % 8 * 4 + column % 8 / 2];
  return reinterpret_cast<const float*>(&total)[row % kBandRows / 8 * 2 + column % 2];
}

// The multipliers of gate, up and down follow each other.
__device__ inline float MultiplierOf(const KernelArgs& args, const std::byte* blob, int index) {
  return reinterpret_cast<const float*>(blob + args.multiplier_offset_bytes)[index];
}

// The projection's bands from `band` on, at most those of a warp.
__device__ inline Bands BandsAt(const KernelArgs& args, const std::byte* projection,
                                uint32_t band) {
  if (band >= args.band_count) return {projection, 0};
  return {projection + band * args.band_bytes, min(kGemmWarpBands, args.band_count - band)};
}

constexpr uint32_t kGateBands = kBands / 2;  // of one block of threads; as many of up

// grid: (groups of kGateBands bands, tiles). The lower half of the warps multiplies gate, the upper
// up; both leave their totals in shared memory, where h is formed and quantised.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles > 4 ? 1 : 2)
    GateUpKernel(const KernelArgs args, uint32_t tile_begin) {
  extern __shared__ uint4 shared_bytes[];
  __shared__ uint32_t row_of[kTiles * 8];
  const ExpertGemmTile tile = args.tiles[tile_begin + blockIdx.y];
  const std::byte* const blob = args.items[tile.item].blob;
  for (uint32_t c = threadIdx.x; c < tile.columns; c += kThreads) {
    row_of[c] = args.entries[tile.entry_begin + c].x_row;
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t is_up = warp / (kGemmWarps / 2);
  const Bands bands =
      BandsAt(args, blob + args.projection_offset_bytes + is_up * args.projection_bytes,
              blockIdx.x * kGateBands + warp % (kGemmWarps / 2) * kGemmWarpBands);
  auto& shared = *reinterpret_cast<Shared<kTiles>*>(shared_bytes);
  MultiplyBands<kTiles>(args, bands, row_of, tile.columns, shared);
  __syncthreads();
  const float gate_multiplier = MultiplierOf(args, blob, 0);
  const float up_multiplier = MultiplierOf(args, blob, 1);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t h_blocks = (args.band_count + 1) / 2;
  constexpr uint32_t kBlocks = kGateBands / 2;  // of 32 values of h
  for (uint32_t job = warp; job < tile.columns * kBlocks; job += kGemmWarps) {
    const uint32_t column = job / kBlocks;
    const uint32_t row = job % kBlocks * 32 + lane;
    const bool valid = blockIdx.x * kGateBands + row / kBandRows < args.band_count;
    const float gate = __fmul_rn(TotalOf<kTiles>(shared, row, column), gate_multiplier);
    const float up =
        __fmul_rn(TotalOf<kTiles>(shared, row + kGateBands * kBandRows, column), up_multiplier);
    const QuantizedLane quantized = QuantizeLane(__fmul_rn(SiluOf(gate), up), valid);
    const uint32_t h_block = blockIdx.x * kBlocks + job % kBlocks;
    if (h_block >= h_blocks) continue;  // the same for the whole warp
    const size_t at = size_t{tile.entry_begin + column} * h_blocks + h_block;
    reinterpret_cast<__half*>(args.h.values + at * kColumnBytes)[PositionOf(lane)] =
        __int2half_rn(quantized.q);
    if (lane == 0) args.h.scale[at] = __fmul_rn(quantized.scale, kGemmScaleFactor);
  }
}

// grid: (groups of kBands bands, tiles).
template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles > 4 ? 1 : 2)
    DownKernel(const KernelArgs args, uint32_t tile_begin) {
  extern __shared__ uint4 shared_bytes[];
  __shared__ uint32_t row_of[kTiles * 8];
  __shared__ uint32_t y_row_of[kTiles * 8];
  const ExpertGemmTile tile = args.tiles[tile_begin + blockIdx.y];
  const std::byte* const blob = args.items[tile.item].blob;
  for (uint32_t c = threadIdx.x; c < tile.columns; c += kThreads) {
    row_of[c] = tile.entry_begin + c;
    y_row_of[c] = args.entries[tile.entry_begin + c].y_row;
  }
  __syncthreads();
  const Bands bands = BandsAt(args, blob + args.projection_offset_bytes,
                              blockIdx.x * kBands + threadIdx.x / 32 * kGemmWarpBands);
  auto& shared = *reinterpret_cast<Shared<kTiles>*>(shared_bytes);
  MultiplyBands<kTiles>(args, bands, row_of, tile.columns, shared);
  __syncwarp();
  const float multiplier = MultiplierOf(args, blob, 0);
  const uint32_t row = threadIdx.x;  // of the block's bands: one lane for each of the warp's rows
  const uint32_t output = blockIdx.x * kBands * kBandRows + row;
  if (output >= args.outputs) return;
  for (uint32_t column = 0; column < tile.columns; ++column) {
    args.y[size_t{y_row_of[column]} * args.y_stride + output] =
        __fmul_rn(TotalOf<kTiles>(shared, row, column), multiplier);
  }
}
static_assert(kGemmWarpBands * kBandRows == 32);

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

template <Product kProduct, uint32_t kClass>
absl::Status Enqueue(const KernelArgs& args, uint32_t tile_begin, uint32_t tile_end,
                     cudaStream_t stream) {
  if (tile_begin == tile_end) return absl::OkStatus();
  constexpr int kTiles = kGemmClassColumns[kClass] / 8;
  constexpr bool kGateUp = kProduct == Product::kGateUp;
  constexpr uint32_t kGroup = kGateUp ? kGateBands : kBands;
  constexpr uint32_t bytes = sizeof(Shared<kTiles>);
  HEARTH_CHECK(bytes == ExpertGemmSharedBytes(kClass));
  const Kernel kernel = kGateUp ? GateUpKernel<kTiles> : DownKernel<kTiles>;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(bytes)),
                 absl::StrCat("prompt product with ", bytes, " bytes of shared memory").c_str()));
  const dim3 grid((args.band_count + kGroup - 1) / kGroup, tile_end - tile_begin);
  kernel<<<grid, kThreads, bytes, stream>>>(args, tile_begin);
  return CudaStatus(cudaGetLastError(), "launch of a prompt product");
}

template <Product kProduct>
absl::Status EnqueueClasses(const KernelArgs& args, const ExpertGemmTiles& cut,
                            cudaStream_t stream) {
  const uint32_t* const begin = cut.class_begin;
  HEARTH_RETURN_IF_ERROR((Enqueue<kProduct, 3>(args, begin[3], begin[4], stream)));
  HEARTH_RETURN_IF_ERROR((Enqueue<kProduct, 2>(args, begin[2], begin[3], stream)));
  HEARTH_RETURN_IF_ERROR((Enqueue<kProduct, 1>(args, begin[1], begin[2], stream)));
  return Enqueue<kProduct, 0>(args, begin[0], begin[1], stream);
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
  const auto set_projection = [&](KernelArgs& kernel_args, Projection p) {
    kernel_args.cols = layout.cols(p);
    kernel_args.outputs = layout.rows(p);
    kernel_args.band_count = BandCount(layout.rows(p));
    kernel_args.band_bytes = layout.band_bytes(p);
    kernel_args.projection_offset_bytes = layout.projection_offset_bytes(p);
    kernel_args.projection_bytes = layout.projection_bytes(p);
    kernel_args.multiplier_offset_bytes = layout.scale_offset_bytes(p);
  };
  KernelArgs gate_up = common;
  gate_up.x = XRows(plan, args.workspace);
  gate_up.h = HRows(plan, args.workspace);
  set_projection(gate_up, Projection::kGate);
  HEARTH_RETURN_IF_ERROR(EnqueueClasses<Product::kGateUp>(gate_up, cut, stream.get()));
  KernelArgs down = common;
  down.x = HRows(plan, args.workspace);
  set_projection(down, Projection::kDown);
  return EnqueueClasses<Product::kDown>(down, cut, stream.get());
}

}  // namespace hearth
