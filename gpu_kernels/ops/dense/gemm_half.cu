// The kernels of gemm_half.h. A block of threads computes 64 outputs a warpgroup by 128 rows of x.
// Every warp reads a band of weights of its own from memory, two steps ahead, and makes fp16 values
// of it in registers; the rows of x come in by the copy engine, for all warps. What a lane reads of
// a band are four neighbouring columns of two rows, where the tensor cores have two pairs: the rows
// of x are stored in that order.
#include <cuda_fp16.h>

#include <algorithm>
#include <utility>

#include "gpu_kernels/common/async_copy.cuh"
#include "gpu_kernels/common/wgmma.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/dense/gemm_half.h"
#include "gpu_kernels/ops/dense/gemm_kernel.cuh"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "gpu_kernels/ops/dense/launch_limits.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kStepBlocks = kHalfStepCols / kQ8BlockValues;
constexpr uint32_t kStageBytes = kHalfTileRows * kHalfLineBytes;
constexpr uint32_t kBlockCodeBytes = kBandRows * kQ8BlockValues;
constexpr uint32_t kBlockScaleBytes = kBandRows * 2;
constexpr uint32_t kWarpgroupBands = 4;  // one of a warp
// Steps after which a stage is filled again: by then most warps have left it.
constexpr uint32_t kLag = 2;
constexpr uint32_t kRowsWarps = 8;

template <uint32_t kWarpgroups>
constexpr uint32_t kStages = kWarpgroups == 4 ? 8 : 6;

struct HalfGemmArgs {
  GemmKernelArgs gemm;  // x is not read
  const std::byte* x;
  const float* factors;
};

// What a lane needs of a step of its warp's band: rows 2g and 2g + 1, columns 4c ... of each half
// of a block; zeros where there is no block.
struct BandStep {
  uint2 codes[kStepBlocks][2];
  uint32_t scales[kStepBlocks];
};

class BandReader {
 public:
  // `lane`: 4 * g + c.
  __device__ BandReader(const std::byte* band, uint32_t blocks, uint32_t lane)
      : codes_(band + lane % 4 * 64 + lane / 4 * 8),
        scales_(band + size_t{blocks} * kBlockCodeBytes + lane / 4 * 4),
        blocks_left_(blocks) {}

  __device__ BandStep Next() {
    BandStep step;
#pragma unroll
    for (uint32_t b = 0; b < kStepBlocks; ++b) {
      step.codes[b][0] = step.codes[b][1] = {0, 0};
      step.scales[b] = 0;
      if (b >= blocks_left_) continue;
      step.codes[b][0] = Load2(codes_ + b * kBlockCodeBytes);
      step.codes[b][1] = Load2(codes_ + b * kBlockCodeBytes + kBlockCodeBytes / 2);
      step.scales[b] = __ldg(reinterpret_cast<const uint32_t*>(scales_ + b * kBlockScaleBytes));
    }
    codes_ += kStepBlocks * kBlockCodeBytes;
    scales_ += kStepBlocks * kBlockScaleBytes;
    blocks_left_ -= min(blocks_left_, kStepBlocks);
    return step;
  }

 private:
  static __device__ uint2 Load2(const std::byte* from) {
    return __ldg(reinterpret_cast<const uint2*>(from));
  }

  const std::byte* codes_;
  const std::byte* scales_;
  uint32_t blocks_left_;
};

// Two codes, of which each is a value + 128, times their scale. 0x6400 | code is 1024 + code.
__device__ inline uint32_t HalvesOf(uint32_t codes, uint32_t selector, __half2 scale) {
  constexpr uint32_t kExponents = 0x64646464u;
  const uint32_t biased = __byte_perm(codes, kExponents, selector);
  const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&biased), __float2half2_rn(1152));
  const __half2 scaled = __hmul2(value, scale);
  return *reinterpret_cast<const uint32_t*>(&scaled);
}

// The operand of sixteen columns: rows 2g and 2g + 1 stand for rows g and g + 8.
__device__ inline void MakeOperand(uint2 codes, uint32_t scales, uint32_t (&a)[4]) {
  const __half2 both = *reinterpret_cast<const __half2*>(&scales);
  const __half2 first = __low2half2(both);
  const __half2 second = __high2half2(both);
  a[0] = HalvesOf(codes.x, 0x4140, first);
  a[1] = HalvesOf(codes.y, 0x4140, second);
  a[2] = HalvesOf(codes.x, 0x4342, first);
  a[3] = HalvesOf(codes.y, 0x4342, second);
}

// Shared memory of a block of threads.
template <uint32_t kWarpgroups>
struct Shared {
  std::byte x[kStages<kWarpgroups>][kStageBytes];  // 1024-byte aligned
  SharedBarrier full[kStages<kWarpgroups>];
  SharedBarrier empty[kStages<kWarpgroups>];
};

// By one thread.
__device__ inline void CopyStage(std::byte* to, const std::byte* from, SharedBarrier* full) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
          full->Address()),
      "r"(kStageBytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(SharedAddress(to)),
      "l"(from), "r"(kStageBytes), "r"(full->Address())
      : "memory");
}

template <uint32_t kWarpgroups>
__device__ inline void Multiply(const BandReader& band, const std::byte* x, uint32_t steps,
                                Shared<kWarpgroups>* shared, float (&sums)[64]) {
  constexpr uint32_t kRing = kStages<kWarpgroups>;
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < min(steps, kRing); ++s) {
      CopyStage(shared->x[s], x + size_t{s} * kStageBytes, &shared->full[s]);
    }
  }
  __syncwarp();
  BandReader reader = band;
  BandStep now = reader.Next();
  BandStep next = reader.Next();
#pragma unroll 1
  for (uint32_t step = 0; step < steps; ++step) {
    const BandStep after = reader.Next();
    if (threadIdx.x == 0 && step >= kLag && step - kLag + kRing < steps) {
      const uint32_t old = step - kLag;
      shared->empty[old % kRing].Wait(old / kRing % 2);
      CopyStage(shared->x[old % kRing], x + size_t{old + kRing} * kStageBytes,
                &shared->full[old % kRing]);
    }
    __syncwarp();
    uint32_t a[2 * kStepBlocks][4];
#pragma unroll
    for (uint32_t i = 0; i < 2 * kStepBlocks; ++i) {
      MakeOperand(now.codes[i / 2][i % 2], now.scales[i / 2], a[i]);
    }
    shared->full[step % kRing].Wait(step / kRing % 2);
    const uint32_t word = SwizzledRowsWord(SharedAddress(shared->x[step % kRing]));
    WgmmaFence();
#pragma unroll
    for (uint32_t i = 0; i < 2 * kStepBlocks; ++i) {
      WgmmaAdd(sums, a[i], SwizzledRowsDescriptor(word + i * 2));
    }
    WgmmaCommit();
    now = next;
    next = after;
    WgmmaWait<0>();
    WgmmaTake(sums);
    if (threadIdx.x % 32 == 0) shared->empty[step % kRing].Arrive();
  }
}

template <uint32_t kWarpgroups>
__global__ void __launch_bounds__(kWarpgroups * 128, 4 / kWarpgroups)
    GemmHalfKernel(const __grid_constant__ HalfGemmArgs args) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto* const shared = reinterpret_cast<Shared<kWarpgroups>*>(memory);
  const GemmKernelArgs& gemm = args.gemm;
  const uint32_t tile = blockIdx.x / gemm.row_tiles;
  const uint32_t row_tile = blockIdx.x % gemm.row_tiles;
  const KernelOutput& output = gemm.outputs[OutputOf(gemm.outputs, 0, gemm.output_count, tile)];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t band =
      (tile - output.first_unit) * kWarpgroups * kWarpgroupBands + threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < kStages<kWarpgroups>; ++s) {
      shared->full[s].Init(1);
      shared->empty[s].Init(kWarpgroups * 4);
    }
    PublishBarriers();
  }
  __syncthreads();
  const uint32_t blocks = gemm.cols / kQ8BlockValues;
  const uint32_t steps = (blocks + kStepBlocks - 1) / kStepBlocks;
  const size_t band_bytes = size_t{blocks} * (kBlockCodeBytes + kBlockScaleBytes);
  // Bands beyond the last are the last one again: their sums are not written.
  const uint32_t there = min(band, (output.rows - 1) / kBandRows);
  float sums[64] = {};
  Multiply<kWarpgroups>(BandReader(output.w + there * band_bytes, blocks, lane),
                        args.x + size_t{row_tile} * steps * kStageBytes, steps, shared, sums);
#pragma unroll
  for (uint32_t n = 0; n < kHalfTileRows / 8; ++n) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t t = row_tile * kHalfTileRows + n * 8 + lane % 4 * 2 + i;
      if (t >= gemm.rows) continue;
      const float factor = args.factors[t];
      WritePair(output, band * kBandRows + lane / 4 * 2, t, __fmul_rn(sums[n * 4 + i], factor),
                __fmul_rn(sums[n * 4 + i + 2], factor));
    }
  }
}

// Eight of sixteen values: columns 4c + 2 * upper and the next, for each c.
__device__ inline uint4 HalvesOfRow(const uint4& codes, float scale, uint32_t upper) {
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  uint32_t halves[4];
#pragma unroll
  for (uint32_t c = 0; c < 4; ++c) {
    const uint32_t pair = words[c] >> upper * 16;
    const auto first = static_cast<float>(static_cast<int8_t>(pair & 255u));
    const auto second = static_cast<float>(static_cast<int8_t>(pair >> 8 & 255u));
    const __half2 two = __floats2half2_rn(__fmul_rn(first, scale), __fmul_rn(second, scale));
    halves[c] = *reinterpret_cast<const uint32_t*>(&two);
  }
  return {halves[0], halves[1], halves[2], halves[3]};
}

// A warp for each row. Its factor is the power of two by which its values are less than 2^15.
__global__ void __launch_bounds__(kRowsWarps * 32)
    HalfRowsKernel(const DeviceRows x, uint32_t rows, uint32_t cols, std::byte* to,
                   float* factors) {
  constexpr uint32_t kGroup = 16;  // columns that a lane takes at a time
  constexpr int kExponentMin = -100;
  const uint32_t row = blockIdx.x * kRowsWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t blocks = cols / kQ8BlockValues;
  const float* const scales = x.scale + size_t{row} * blocks;
  float most = 0;
  for (uint32_t b = lane; b < blocks; b += 32) most = fmaxf(most, scales[b]);
#pragma unroll
  for (uint32_t offset = 16; offset > 0; offset /= 2) {
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
  }
  const int exponent = max(static_cast<int>(__float_as_uint(most) >> 23) - 127, kExponentMin) - 7;
  const float shrink = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
  if (lane == 0) factors[row] = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
  const uint32_t steps = (cols + kHalfStepCols - 1) / kHalfStepCols;
  const uint32_t line = row % kHalfTileRows;
  std::byte* const lines =
      to + (size_t{row / kHalfTileRows} * steps * kHalfTileRows + line) * kHalfLineBytes;
  for (uint32_t group = lane; group < steps * (kHalfStepCols / kGroup); group += 32) {
    uint4 codes = {0, 0, 0, 0};
    float scale = 0;
    if (group * kGroup < cols) {
      codes = *reinterpret_cast<const uint4*>(x.q + size_t{row} * cols + group * kGroup);
      scale = __fmul_rn(scales[group * kGroup / kQ8BlockValues], shrink);
    }
    std::byte* const at = lines + size_t{group / 4} * kStageBytes;
#pragma unroll
    for (uint32_t upper = 0; upper < 2; ++upper) {
      *reinterpret_cast<uint4*>(at + ((group % 4 * 2 + upper) ^ line % 8) * 16) =
          HalvesOfRow(codes, scale, upper);
    }
  }
}

template <uint32_t kWarpgroups>
absl::Status Launch(std::span<const MatmulOutput> outputs, HalfGemmArgs args,
                    CudaStreamView stream) {
  constexpr uint32_t kOutputs = kWarpgroups * kWarpgroupBands * kBandRows;
  const GemmTileMap map = MapTiles(outputs, args.gemm.rows, {kOutputs, kHalfTileRows});
  args.gemm = GemmKernelArgsOf(outputs, map, args.gemm.x, args.gemm.rows, args.gemm.cols);
  constexpr uint32_t kSharedBytes = sizeof(Shared<kWarpgroups>);
  HEARTH_RETURN_IF_ERROR(
      AllowSharedBytes(reinterpret_cast<const void*>(GemmHalfKernel<kWarpgroups>), kSharedBytes));
  GemmHalfKernel<kWarpgroups>
      <<<map.weight_tiles * map.row_tiles, kWarpgroups * 128, kSharedBytes, stream.get()>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of a dense product in fp16");
}

}  // namespace

absl::StatusOr<bool> HasWarpgroups(GpuId gpu) {
  int major = 0;
  int minor = 0;
  for (const auto& [attribute, value] : {std::pair(cudaDevAttrComputeCapabilityMajor, &major),
                                         std::pair(cudaDevAttrComputeCapabilityMinor, &minor)}) {
    HEARTH_RETURN_IF_ERROR(
        CudaStatus(cudaDeviceGetAttribute(value, attribute, static_cast<int>(gpu.value)),
                   "compute capability of the GPU"));
  }
  return major == 9 && minor == 0;
}

absl::Status LaunchGemmHalf(std::span<const MatmulOutput> outputs, const DeviceRows& x,
                            uint32_t rows, uint32_t cols, std::byte* room, CudaStreamView stream) {
  // Columns from which blocks that fill a multiprocessor are worth their longer begin and end.
  constexpr uint32_t kLongCols = 1024;
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  HEARTH_ASSIGN_OR_RETURN(const GpuLimits gpu, CurrentLimits(stream.gpu()));
  auto* const factors =
      reinterpret_cast<float*>(room + LayOutHalfRows(rows, cols).factors_offset_bytes);
  HalfRowsKernel<<<(rows + kRowsWarps - 1) / kRowsWarps, kRowsWarps * 32, 0, stream.get()>>>(
      x, rows, cols, room, factors);
  HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "launch of rows in fp16"));
  HalfGemmArgs args = {};
  args.x = room;
  args.factors = factors;
  args.gemm.rows = rows;
  args.gemm.cols = cols;
  const GemmTileMap large =
      MapTiles(outputs, rows, {4 * kWarpgroupBands * kBandRows, kHalfTileRows});
  const bool enough = large.weight_tiles * large.row_tiles >= 2 * gpu.multiprocessor_count;
  return enough && cols >= kLongCols ? Launch<4>(outputs, args, stream)
                                     : Launch<2>(outputs, args, stream);
}

}  // namespace hearth
