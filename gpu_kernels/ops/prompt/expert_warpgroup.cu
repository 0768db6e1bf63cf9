// The products of gpu_kernels/ops/prompt/expert_gemm.h on warpgroups of compute capability 9.0:
// asynchronous tensor-core instructions that read activations from shared memory themselves, so
// that warps decode weights and add results while others multiply.
#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/wgmma.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/prompt/gemm_args.h"
#include "gpu_kernels/ops/prompt/gemm_parts.cuh"
#include "gpu_kernels/ops/prompt/gemm_tile.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWarps = 8;  // a band each; four of them multiply together
constexpr uint32_t kThreads = kWarps * 32;
constexpr uint32_t kStages = 2;
constexpr uint32_t kGateBands = kWarps / 2;  // of a block of threads; as many of up
constexpr uint32_t kRowBytes = kGemmStageBlocks * kGemmBlockValues * 2;  // of a column and a stage
constexpr uint32_t kPieces = kRowBytes / 16;
constexpr uint32_t kSubBlockBytes = kNvfp4BlockValues * 2;  // of a column

// Where value `index` of a block of 32 stands: sub-block by sub-block, the order of LoadWeights().
__device__ inline uint32_t HalfPositionOf(uint32_t index) {
  const uint32_t in_line = index % 8;
  const uint32_t t = index / 8 % 2 * 2 + in_line % 2;
  return index / 16 * 16 + in_line / 4 * 8 + t * 2 + in_line / 2 % 2;
}

template <int kTiles>
struct Shared {
  std::byte x[kStages][kTiles * 8 * kRowBytes];  // 1024-byte aligned
  // [block][pair of tiles][t][tile of the pair][column]: what a lane reads at once.
  float scale[kStages][kGemmStageBlocks][kTiles * 8];
  std::byte bands[kStages][kWarps][kGemmBandBytes];
  float4 totals[kWarps][kTiles][32];
  uint32_t y_row[kTiles * 8];
};

// Copies stage after stage: the block of threads its columns, every warp its band, zeros where
// there is none. Columns beyond the tile's are its last one again: nobody reads what becomes of
// them.
template <int kTiles>
class StageCopies {
 public:
  __device__ StageCopies(const GemmKernelArgs& args, const std::byte* band, bool there,
                         const ExpertGemmTile& tile)
      : x_(args.x.values), sub_blocks_left_(there ? args.cols / kNvfp4BlockValues : 0) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < kRounds; ++i) {
      const auto row = static_cast<uint32_t>(
          RowOfColumn(args, tile, i * kThreads / kPieces + threadIdx.x / kPieces));
      x_offset_[i] = row * args.x.pitch_blocks * kGemmBlockValues * 2 + threadIdx.x % kPieces * 16;
    }
    scale_ = args.x.scale +
             RowOfColumn(args, tile, threadIdx.x / kGemmStageBlocks) * args.x.pitch_blocks +
             threadIdx.x % kGemmStageBlocks;
    codes_ = band + lane * 16;
    scales_ = band + size_t{args.cols} * 8 + lane % 4 * kBandRows;
  }

  __device__ void Copy(Shared<kTiles>& shared, uint32_t stage) {
    const uint32_t column = threadIdx.x / kPieces;  // and every 32nd after it
    std::byte* const x =
        shared.x[stage] + column * kRowBytes + (threadIdx.x % kPieces ^ column % 8) * 16;
#pragma unroll
    for (uint32_t i = 0; i < kRounds; ++i) {
      if ((i + 1) * kThreads <= kAllPieces || i * kThreads + threadIdx.x < kAllPieces) {
        CopyAsync16(x + i * kThreads / kPieces * kRowBytes, x_ + x_offset_[i], 16);
      }
      x_offset_[i] += kRowBytes;
    }
    if (threadIdx.x < kTiles * 8 * kGemmStageBlocks) {
      const uint32_t c = threadIdx.x / kGemmStageBlocks;
      CopyAsync4(&shared.scale[stage][threadIdx.x % kGemmStageBlocks]
                              [c / 16 * 16 + c % 8 / 2 * 4 + c / 8 % 2 * 2 + c % 2],
                 scale_);
    }
    scale_ += kGemmStageBlocks;
    const uint32_t lane = threadIdx.x % 32;
    std::byte* const band = shared.bands[stage][threadIdx.x / 32];
    CopyAsync16(band + lane * 16, codes_, lane / 8 < sub_blocks_left_ ? 16 : 0);
    if (lane < 4) {
      CopyAsync16(band + kGemmCodeBytes + lane * 16, scales_, lane < sub_blocks_left_ ? 16 : 0);
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
  static constexpr uint32_t kAllPieces = kTiles * 8 * kPieces;
  static constexpr uint32_t kRounds = (kAllPieces + kThreads - 1) / kThreads;

  const std::byte* x_;
  uint32_t x_offset_[kRounds];
  const float* scale_;
  const std::byte* codes_;
  const std::byte* scales_;
  uint32_t sub_blocks_left_;
};

// What a lane has summed of the segment at hand; those before it are in shared memory.
template <int kTiles>
struct Sums {
  float4 segment[kTiles];
  float4* totals;

  __device__ explicit Sums(float4* lane_totals) : totals(lane_totals) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) segment[n] = totals[n * 32] = float4{0, 0, 0, 0};
  }
  __device__ void EndSegment() { AddToTotals<kTiles>(segment, totals); }
};

// Registers hold the sums of all columns and the results of some: what one product of a block is.
template <int kTiles>
constexpr int kPartTiles = kTiles <= 6    ? kTiles
                           : kTiles == 10 ? 5
                                          : 4;
// Whether there are registers for scales and the next block's weights while products are under way.
template <int kTiles>
constexpr bool kHasRoom = kTiles <= 8 || kTiles == 12;

// One product's results, scaled, to the sums of its tiles.
template <int kTiles, int kBegin, int kCount>
__device__ inline void AddResults(const float (&d)[kCount * 4], const float2 (&scale)[kCount],
                                  Sums<kTiles>& sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    AddScaled(float4{d[i * 4], d[i * 4 + 1], d[i * 4 + 2], d[i * 4 + 3]}, scale[i],
              sums.segment[kBegin + i]);
  }
}

// Tiles from kBegin on of one block: both sub-blocks' products, then their sums in order. `next` is
// called once, while the last of them are under way.
template <int kTiles, int kBegin, class Next>
__device__ inline void AddParts(const BlockWeights& w, uint32_t x, const float4* lane_scales,
                                Sums<kTiles>& sums, Next&& next) {
  constexpr int kCount =
      kTiles - kBegin < kPartTiles<kTiles> ? kTiles - kBegin : kPartTiles<kTiles>;
  float first[kCount * 4];
  float second[kCount * 4];
  constexpr uint32_t kOffset = kBegin * 8 * kRowBytes / 16;
  WgmmaFence();
  Wgmma<kCount>(first, w.a[0], SwizzledRowsDescriptor(x + kOffset));
  WgmmaCommit();
  Wgmma<kCount>(second, w.a[1], SwizzledRowsDescriptor(x + kOffset + kSubBlockBytes / 16));
  WgmmaCommit();
  float2 scale[kCount];
  const auto load_scales = [&] {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int n = kBegin + i;
      const float4 s = lane_scales[n / 2 * 4];
      scale[i] = n % 2 == 0 ? float2{s.x, s.y} : float2{s.z, s.w};
    }
  };
  if constexpr (kHasRoom<kTiles>) {
    load_scales();
    if constexpr (kBegin + kCount == kTiles) next();
  }
  WgmmaWait<1>();
  WgmmaTake(first);
  if constexpr (!kHasRoom<kTiles>) load_scales();
  AddResults<kTiles, kBegin, kCount>(first, scale, sums);
  WgmmaWait<0>();
  WgmmaTake(second);
  AddResults<kTiles, kBegin, kCount>(second, scale, sums);
  if constexpr (kBegin + kCount < kTiles) {
    AddParts<kTiles, kBegin + kCount>(w, x, lane_scales, sums, next);
  }
}

// The whole reduction of the warp's band over the tile's columns, into shared.totals.
template <int kTiles>
__device__ inline void MultiplyBand(const GemmKernelArgs& args, const std::byte* band, bool there,
                                    const ExpertGemmTile& tile, Shared<kTiles>& shared) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t blocks = (args.cols + kGemmBlockValues - 1) / kGemmBlockValues;
  const uint32_t stage_count = (blocks + kGemmStageBlocks - 1) / kGemmStageBlocks;
  StageCopies<kTiles> copies(args, band, there, tile);
  copies.Copy(shared, 0);
  asm volatile("cp.async.commit_group;");
  Sums<kTiles> sums(&shared.totals[warp][0][lane]);
  uint32_t left = kGemmSegmentBlocks;  // of the segment
  for (uint32_t s = 0; s < stage_count; ++s) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();  // the stage is there, and the one before it has been read
    if (s + 1 < stage_count) copies.Copy(shared, (s + 1) % kStages);
    asm volatile("cp.async.commit_group;");
    const std::byte* const codes = shared.bands[s % kStages][warp];
    const uint32_t x = SwizzledRowsWord(SharedAddress(shared.x[s % kStages]));
    BlockWeights w = LoadBlock(codes, 0, lane);
#pragma unroll
    for (uint32_t block = 0; block < kGemmStageBlocks; ++block) {
      if (s * kGemmStageBlocks + block >= blocks) break;
      const auto* scales =
          reinterpret_cast<const float4*>(shared.scale[s % kStages][block]) + lane % 4;
      BlockWeights after;
      AddParts<kTiles, 0>(w, x + block * 2 * kSubBlockBytes / 16, scales, sums, [&] {
        if (block + 1 < kGemmStageBlocks) after = LoadBlock(codes, block + 1, lane);
      });
      if (block + 1 < kGemmStageBlocks)
        w = kHasRoom<kTiles> ? after : LoadBlock(codes, block + 1, lane);
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

// The lower warpgroup multiplies gate, the other up; h is formed and quantised from their totals.
template <int kTiles>
__device__ inline void GateUp(const GemmKernelArgs& args, const ExpertGemmTile& tile,
                              std::byte* memory) {
  auto& shared = *reinterpret_cast<Shared<kTiles>*>(memory);
  const std::byte* const blob = args.items[tile.item].blob;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t band = blockIdx.x * kGateBands + warp % kGateBands;
  const bool there = band < args.band_count;
  MultiplyBand<kTiles>(args,
                       blob + args.projection_offset_bytes +
                           warp / kGateBands * args.projection_bytes +
                           (there ? band * args.band_bytes : 0),
                       there, tile, shared);
  __syncthreads();
  StoreHidden<kGateBands, kWarps>(args, tile, blob, shared,
                                  [](uint32_t index) { return HalfPositionOf(index); });
}

template <int kTiles>
__device__ inline void Down(const GemmKernelArgs& args, const ExpertGemmTile& tile,
                            std::byte* memory) {
  auto& shared = *reinterpret_cast<Shared<kTiles>*>(memory);
  const std::byte* const blob = args.items[tile.item].blob;
  if (threadIdx.x < tile.columns) {
    shared.y_row[threadIdx.x] = args.entries[tile.entry_begin + threadIdx.x].y_row;
  }
  const uint32_t band = blockIdx.x * kWarps + threadIdx.x / 32;
  const bool there = band < args.band_count;
  MultiplyBand<kTiles>(args,
                       blob + args.projection_offset_bytes + (there ? band * args.band_bytes : 0),
                       there, tile, shared);
  const float multiplier = MultiplierOf(args, blob, 0);
  const uint32_t lane = threadIdx.x % 32;
  const float4* const totals = &shared.totals[threadIdx.x / 32][0][lane];
  const uint32_t output = band * kBandRows + lane / 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const float4 total = totals[n * 32];
    const float of[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t column = n * 8 + lane % 4 * 2 + i % 2;
      if (column >= tile.columns || output + i / 2 * 8 >= args.outputs) continue;
      args.y[size_t{shared.y_row[column]} * args.y_stride + output + i / 2 * 8] =
          __fmul_rn(of[i], multiplier);
    }
  }
}

// grid: (groups of bands, tiles), the largest tiles first.
template <bool kIsGateUp>
__global__ void __launch_bounds__(kThreads, 2) ProductKernel(const GemmKernelArgs args) {
  extern __shared__ __align__(1024) std::byte memory[];
  const ExpertGemmTile tile = args.tiles[gridDim.y - 1 - blockIdx.y];
  const auto run = [&](auto tiles) {
    if constexpr (kIsGateUp) {
      GateUp<decltype(tiles)::value>(args, tile, memory);
    } else {
      Down<decltype(tiles)::value>(args, tile, memory);
    }
  };
  switch ((tile.columns + kGemmClassStep - 1) / kGemmClassStep) {
    case 1:
      return run(std::integral_constant<int, 2>());
    case 2:
      return run(std::integral_constant<int, 4>());
    case 3:
      return run(std::integral_constant<int, 6>());
    case 4:
      return run(std::integral_constant<int, 8>());
    case 5:
      return run(std::integral_constant<int, 10>());
    case 6:
      return run(std::integral_constant<int, 12>());
    case 7:
      return run(std::integral_constant<int, 14>());
    default:
      return run(std::integral_constant<int, 16>());
  }
}

// As StoreRows().
__global__ void RowsKernel(HalfRows x, const int8_t* q, const float* scale, uint32_t blocks) {
  StoreRows<kWarps>(x, q, scale, blocks, [](uint32_t index) { return HalfPositionOf(index); });
}

uint32_t SharedBytes(uint32_t gemm_class) {
  constexpr uint32_t kBytes[] = {sizeof(Shared<2>),  sizeof(Shared<4>),  sizeof(Shared<6>),
                                 sizeof(Shared<8>),  sizeof(Shared<10>), sizeof(Shared<12>),
                                 sizeof(Shared<14>), sizeof(Shared<16>)};
  static_assert(sizeof(kBytes) / sizeof(kBytes[0]) == kGemmClassCount);
  return kBytes[gemm_class];
}

template <bool kIsGateUp>
absl::Status Enqueue(const GemmKernelArgs& args, const ExpertGemmClasses& classes,
                     CudaStreamView stream) {
  const uint32_t tile_count = classes[kGemmClassCount];
  if (tile_count == 0) return absl::OkStatus();
  uint32_t largest = kGemmClassCount - 1;
  while (classes[largest] == tile_count) --largest;
  const uint32_t bytes = SharedBytes(largest);
  HEARTH_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(ProductKernel<kIsGateUp>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(SharedBytes(kGemmClassCount - 1))),
      absl::StrCat("prompt product with ", bytes, " bytes of shared memory").c_str()));
  constexpr uint32_t kGroup = kIsGateUp ? kGateBands : kWarps;
  const dim3 grid((args.band_count + kGroup - 1) / kGroup, tile_count);
  ProductKernel<kIsGateUp><<<grid, kThreads, bytes, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of a prompt product");
}

}  // namespace

absl::Status LaunchWarpgroupRows(const HalfRows& x, const int8_t* q, const float* scale,
                                 uint32_t rows, uint32_t blocks, CudaStreamView stream) {
  const dim3 grid(rows, (blocks + kWarps - 1) / kWarps);
  RowsKernel<<<grid, kThreads, 0, stream.get()>>>(x, q, scale, blocks);
  return CudaStatus(cudaGetLastError(), "launch of a prompt product's rows");
}

absl::Status LaunchWarpgroupProducts(const GemmKernelArgs& gate_up, const GemmKernelArgs& down,
                                     const ExpertGemmClasses& classes, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(Enqueue<true>(gate_up, classes, stream));
  return Enqueue<false>(down, classes, stream);
}

}  // namespace hearth
