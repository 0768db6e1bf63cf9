// The kernels of gpu_kernels/ops/prompt/expert_gemm.h, for every architecture with mma.m16n8k16 and
// cp.async (sm_80 and later).
#include "gpu_kernels/ops/prompt/expert_gemm.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/prompt/gemm_args.h"
#include "gpu_kernels/ops/prompt/gemm_parts.cuh"
#include "gpu_kernels/ops/prompt/gemm_tile.cuh"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kThreads = kGemmWarps * 32;
constexpr uint32_t kStages = 3;
constexpr uint32_t kBands = kGemmWarps * kGemmWarpBands;  // of one block of threads
constexpr uint32_t kColumnBytes = kGemmBlockValues * 2;   // of one column and block of x
constexpr uint32_t kColumnPieces = kGemmStageBlocks * kColumnBytes / 16;  // copies of one stage

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

// Copies stage after stage of the reduction: the block of threads its columns, every warp its
// bands. Columns beyond the tile's are its last one again: nobody reads what becomes of them.
template <int kTiles>
class StageCopies {
 public:
  __device__ StageCopies(const GemmKernelArgs& args, const Bands& bands, const ExpertGemmTile& tile)
      : sub_blocks_left_(args.cols / kNvfp4BlockValues),
        band_count_(bands.count),
        band_bytes_(args.band_bytes) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < kPieceRounds; ++i) {
      const uint32_t piece = i * kThreads + threadIdx.x;
      x_[i] = args.x.values +
              RowOfColumn(args, tile, piece / kColumnPieces) * args.x.pitch_blocks * kColumnBytes +
              piece % kColumnPieces * 16;
    }
    scale_ = args.x.scale +
             RowOfColumn(args, tile, threadIdx.x / kGemmStageBlocks) * args.x.pitch_blocks +
             threadIdx.x % kGemmStageBlocks;
    codes_ = bands.bytes + lane * 16;
    // Lanes 0 to 3 copy the scales of the first band, 4 to 7 those of the second.
    scales_ = bands.bytes + size_t{args.cols} * 8 + lane % 4 * kBandRows;
    copies_scales_ = lane < 4 * bands.count;
    if (copies_scales_) scales_ += lane / 4 * band_bytes_;
  }

  // The next stage into its place.
  __device__ void Copy(Stage<kTiles>& stage) {
#pragma unroll
    for (uint32_t i = 0; i < kPieceRounds; ++i) {
      const uint32_t piece = i * kThreads + threadIdx.x;
      if ((i + 1) * kThreads <= kPieces || piece < kPieces) {
        constexpr uint32_t kBlockPieces = kColumnPieces / kGemmStageBlocks;
        CopyAsync16(&stage.x[piece % kColumnPieces / kBlockPieces][piece / kColumnPieces]
                            [piece % kBlockPieces * 16],
                    x_[i], 16);
      }
      x_[i] += kGemmStageBlocks * kColumnBytes;
    }
    if (threadIdx.x < kTiles * 8 * kGemmStageBlocks) {
      CopyAsync4(&stage.scale[threadIdx.x % kGemmStageBlocks][threadIdx.x / kGemmStageBlocks],
                 scale_);
    }
    scale_ += kGemmStageBlocks;

    const uint32_t lane = threadIdx.x % 32;
    std::byte* const to_band = stage.bands[threadIdx.x / 32 * kGemmWarpBands];
    const uint32_t code_bytes = lane / 8 < sub_blocks_left_ ? 16 : 0;  // a sub-block is eight parts
#pragma unroll
    for (uint32_t i = 0; i < kGemmWarpBands; ++i) {
      const bool there = i < band_count_;
      CopyAsync16(to_band + i * kGemmBandBytes + lane * 16, codes_ + (there ? i * band_bytes_ : 0),
                  there ? code_bytes : 0);
    }
    if (lane < kGemmWarpBands * 4) {
      const bool there = copies_scales_ && lane % 4 < sub_blocks_left_;
      CopyAsync16(to_band + lane / 4 * kGemmBandBytes + kGemmCodeBytes + lane % 4 * 16, scales_,
                  there ? 16 : 0);
    }
    constexpr uint32_t kSubBlocks = kGemmStageBlocks * 2;
    if (sub_blocks_left_ <= kSubBlocks) {
      sub_blocks_left_ = 0;
      return;
    }
    sub_blocks_left_ -= kSubBlocks;
    codes_ += kSubBlocks * 128;
    scales_ += kSubBlocks * kBandRows;
  }

 private:
  static constexpr uint32_t kPieces = kTiles * 8 * kColumnPieces;
  static constexpr uint32_t kPieceRounds = (kPieces + kThreads - 1) / kThreads;

  uint32_t sub_blocks_left_;
  uint32_t band_count_;
  bool copies_scales_;
  uint64_t band_bytes_;
  const std::byte* x_[kPieceRounds];
  const float* scale_;
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
__device__ void MultiplyBands(const GemmKernelArgs& args, const Bands& bands,
                              const ExpertGemmTile& tile, Shared<kTiles>& shared) {
  const uint32_t blocks = (args.cols + kGemmBlockValues - 1) / kGemmBlockValues;
  const uint32_t stage_count = (blocks + kGemmStageBlocks - 1) / kGemmStageBlocks;
  StageCopies<kTiles> copies(args, bands, tile);
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < stage_count) copies.Copy(shared.stages[s]);
    asm volatile("cp.async.commit_group;");
  }
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t first_band = threadIdx.x / 32 * kGemmWarpBands;
  BandSums<kTiles> sums(&shared.totals[first_band][0][lane]);
  uint32_t left = kGemmSegmentBlocks;  // of the segment
  for (uint32_t s = 0; s < stage_count; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();  // the stage is there, and the one before it has been read
    const uint32_t ahead = s + kStages - 1;
    if (ahead < stage_count) copies.Copy(shared.stages[ahead % kStages]);
    asm volatile("cp.async.commit_group;");
    const Stage<kTiles>& stage = shared.stages[s % kStages];
#pragma unroll
    for (uint32_t block = 0; block < kGemmStageBlocks; ++block) {
      if (s * kGemmStageBlocks + block >= blocks) break;
      AddBlock<kTiles>(stage.bands[first_band], block, &stage.x[block][0][0], stage.scale[block],
                       lane, sums);
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

// The projection's bands from `band` on, at most those of a warp.
__device__ inline Bands BandsAt(const GemmKernelArgs& args, const std::byte* projection,
                                uint32_t band) {
  if (band >= args.band_count) return {projection, 0};
  return {projection + band * args.band_bytes, min(kGemmWarpBands, args.band_count - band)};
}

constexpr uint32_t kGateBands = kBands / 2;  // of one block of threads; as many of up

// grid: (groups of kGateBands bands, tiles). The lower half of the warps multiplies gate, the upper
// up; both leave their totals in shared memory, where h is formed and quantised.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles > 4 ? 1 : 2)
    GateUpKernel(const GemmKernelArgs args, uint32_t tile_begin) {
  extern __shared__ uint4 shared_bytes[];
  const ExpertGemmTile tile = args.tiles[tile_begin + blockIdx.y];
  const std::byte* const blob = args.items[tile.item].blob;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t is_up = warp / (kGemmWarps / 2);
  const Bands bands =
      BandsAt(args, blob + args.projection_offset_bytes + is_up * args.projection_bytes,
              blockIdx.x * kGateBands + warp % (kGemmWarps / 2) * kGemmWarpBands);
  auto& shared = *reinterpret_cast<Shared<kTiles>*>(shared_bytes);
  MultiplyBands<kTiles>(args, bands, tile, shared);
  __syncthreads();
  StoreHidden<kGateBands, kGemmWarps>(args, tile, blob, shared,
                                      [](uint32_t index) { return PositionOf(index); });
}

// grid: (groups of kBands bands, tiles).
template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles > 4 ? 1 : 2)
    DownKernel(const GemmKernelArgs args, uint32_t tile_begin) {
  extern __shared__ uint4 shared_bytes[];
  __shared__ uint32_t y_row_of[kTiles * 8];
  const ExpertGemmTile tile = args.tiles[tile_begin + blockIdx.y];
  const std::byte* const blob = args.items[tile.item].blob;
  for (uint32_t c = threadIdx.x; c < tile.columns; c += kThreads) {
    y_row_of[c] = args.entries[tile.entry_begin + c].y_row;
  }
  __syncthreads();
  const Bands bands = BandsAt(args, blob + args.projection_offset_bytes,
                              blockIdx.x * kBands + threadIdx.x / 32 * kGemmWarpBands);
  auto& shared = *reinterpret_cast<Shared<kTiles>*>(shared_bytes);
  MultiplyBands<kTiles>(args, bands, tile, shared);
  __syncwarp();
  const float multiplier = MultiplierOf(args, blob, 0);
  const uint32_t row = threadIdx.x;  // of the block's bands: one lane for each of the warp's rows
  const uint32_t output = blockIdx.x * kBands * kBandRows + row;
  if (output >= args.outputs) return;
  for (uint32_t column = 0; column < tile.columns; ++column) {
    args.y[size_t{y_row_of[column]} * args.y_stride + output] =
        __fmul_rn(TotalOf(shared, row, column), multiplier);
  }
}
static_assert(kGemmWarpBands * kBandRows == 32);

// As StoreRows().
__global__ void RowsKernel(HalfRows x, const int8_t* q, const float* scale, uint32_t blocks) {
  StoreRows<kGemmWarps>(x, q, scale, blocks, [](uint32_t index) { return PositionOf(index); });
}

using Kernel = void (*)(GemmKernelArgs, uint32_t);

enum class Product { kGateUp, kDown };

template <Product kProduct, uint32_t kClass>
absl::Status Enqueue(const GemmKernelArgs& args, uint32_t tile_begin, uint32_t tile_end,
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

template <Product kProduct, size_t... kClasses>
absl::Status EnqueueClasses(const GemmKernelArgs& args, const ExpertGemmClasses& begin,
                            cudaStream_t stream, std::index_sequence<kClasses...>) {
  constexpr size_t kCount = sizeof...(kClasses);
  HEARTH_CHECK(begin[kCount] == begin[kGemmClassCount]);  // no larger ones
  absl::Status status;
  // The largest class first: what is small fills the end.
  ((status.ok() ? void(status = Enqueue<kProduct, kCount - 1 - kClasses>(
                           args, begin[kCount - 1 - kClasses], begin[kCount - kClasses], stream))
                : void()),
   ...);
  return status;
}

HalfRows XRows(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan, std::byte* workspace) {
  return {workspace, reinterpret_cast<float*>(workspace + plan.x_scale_offset_bytes),
          ExpertGemmPitchBlocks(desc.layout.hidden)};
}
HalfRows HRows(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan, std::byte* workspace) {
  return {workspace + plan.h_offset_bytes,
          reinterpret_cast<float*>(workspace + plan.h_scale_offset_bytes),
          ExpertGemmPitchBlocks(desc.layout.width)};
}

}  // namespace

absl::Status LaunchExpertGemmRows(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan,
                                  const ExpertGemmRowsArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t blocks = ActivationBlocks(desc.layout.hidden);
#ifdef HEARTH_PROMPT_WARPGROUPS
  if (desc.kind == ExpertGemmKind::kWarpgroup) {
    return LaunchWarpgroupRows(XRows(desc, plan, args.workspace), args.q, args.scale,
                               desc.row_count, blocks, stream);
  }
#endif
  const dim3 grid(desc.row_count, (blocks + kGemmWarps - 1) / kGemmWarps);
  RowsKernel<<<grid, kThreads, 0, stream.get()>>>(XRows(desc, plan, args.workspace), args.q,
                                                  args.scale, blocks);
  return CudaStatus(cudaGetLastError(), "launch of a prompt product's rows");
}

absl::Status LaunchExpertGemm(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan,
                              const ExpertGemmClasses& classes, const ExpertGemmArgs& args,
                              CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const ExpertLayout& layout = desc.layout;
  GemmKernelArgs common = {};
  common.items = args.items;
  common.entries = args.entries;
  common.tiles = args.tiles;
  common.y = args.y;
  common.y_stride = args.y_stride;
  const auto set_projection = [&](GemmKernelArgs& kernel_args, Projection p) {
    kernel_args.cols = layout.cols(p);
    kernel_args.outputs = layout.rows(p);
    kernel_args.band_count = BandCount(layout.rows(p));
    kernel_args.band_bytes = layout.band_bytes(p);
    kernel_args.projection_offset_bytes = layout.projection_offset_bytes(p);
    kernel_args.projection_bytes = layout.projection_bytes(p);
    kernel_args.multiplier_offset_bytes = layout.scale_offset_bytes(p);
  };
  GemmKernelArgs gate_up = common;
  gate_up.x = XRows(desc, plan, args.workspace);
  gate_up.gathers = true;
  gate_up.h = HRows(desc, plan, args.workspace);
  set_projection(gate_up, Projection::kGate);
  GemmKernelArgs down = common;
  down.x = HRows(desc, plan, args.workspace);
  set_projection(down, Projection::kDown);
#ifdef HEARTH_PROMPT_WARPGROUPS
  if (desc.kind == ExpertGemmKind::kWarpgroup) {
    return LaunchWarpgroupProducts(gate_up, down, classes, stream);
  }
#endif
  constexpr std::make_index_sequence<kGemmWarpColumnsMax / kGemmClassStep> kClasses;
  HEARTH_RETURN_IF_ERROR(
      EnqueueClasses<Product::kGateUp>(gate_up, classes, stream.get(), kClasses));
  return EnqueueClasses<Product::kDown>(down, classes, stream.get(), kClasses);
}

}  // namespace hearth
