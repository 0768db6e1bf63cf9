// The kernels of gpu_kernels/ops/expert_ffn.h, for every architecture with dp4a and warp reductions
// (sm_80 and later).
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/expert_ffn_staging.h"
#include "gpu_kernels/ops/expert_ffn_stream.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kSubBlockLines = 8;  // of 16 bytes: two lines of 64

// Device view of QuantizedRows (cpu_kernels/ops/activation.h).
struct DeviceRows {
  int8_t* q;
  float* scale;
  int32_t* sum16;
};

struct KernelArgs {
  const ExpertFfnItem* items;
  const uint32_t* item_count;  // or null: all that the grid has
  const ExpertFfnEntry* entries;
  DeviceRows x;  // read only
  DeviceRows h;  // one row for each entry
  float* y;
  uint32_t y_stride;
  uint32_t cols;        // reduction length of this launch
  uint32_t band_count;  // of each of its projections
  uint32_t segments;
  uint32_t bands_per_block;
  uint64_t band_bytes;
  uint64_t projection_offset_bytes[2];
  uint64_t multiplier_offset_bytes[2];
};

template <int kRows>
struct SegmentSums {
  float of[kRows][4];  // row of x, weight row 4 * (lane % 4) + i of the band
};

// Rows of shared memory (expert_ffn_staging.h), of an item's `rows` <= kRows; the rest is zero.
template <int kRows, class RowOf>
__device__ void StageRows(const KernelArgs& args, const DeviceRows& from, uint32_t rows,
                          const RowOf& row_of, uint4* staged_q, BlockFactors* staged_blocks) {
  const uint32_t sub_blocks = args.cols / kNvfp4BlockValues;
  const uint32_t blocks = (args.cols + kActivationBlockValues - 1) / kActivationBlockValues;
  const uint32_t row_lines = args.segments * kStagedSegmentLines;
  size_t first_block[kRows];
#pragma unroll
  for (int t = 0; t < kRows; ++t) first_block[t] = t < rows ? row_of(t) * blocks : 0;
  for (uint32_t b = threadIdx.x; b < sub_blocks; b += blockDim.x) {
    const uint32_t line = b / kSegmentSubBlocks * kStagedSegmentLines + b % kSegmentSubBlocks;
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      uint4 q = {0, 0, 0, 0};
      BlockFactors factors = {kIntegerFloatBits, 0.0f};
      if (t < rows) {
        const uint4 plain = reinterpret_cast<const uint4*>(from.q)[first_block[t] * 2 + b];
        const uint2 low = ReorderActivations(plain.x, plain.y);
        const uint2 high = ReorderActivations(plain.z, plain.w);
        q = {low.x, low.y, high.x, high.y};
        factors.dot_start = kIntegerFloatBits - kNvfp4Offset * from.sum16[first_block[t] * 2 + b];
        factors.scale = from.scale[first_block[t] + b / 2];
      }
      staged_q[t * row_lines + line] = q;
      staged_blocks[t * sub_blocks + b] = factors;
    }
  }
}

// What one lane loads of a sub-block: four weight rows.
struct SubBlock {
  uint4 lines[2];
  uint32_t scales;
};

__device__ inline SubBlock LoadSubBlock(const uint4* codes, const uint32_t* scales, uint32_t b) {
  return {{__ldg(codes + b * kSubBlockLines), __ldg(codes + b * kSubBlockLines + 4)},
          __ldg(scales + b * 4)};
}

// Four rows of weights by kRows rows of x over one sub-block.
template <int kRows>
__device__ inline void AddSubBlock(const SubBlock& block, const uint4* q, uint32_t q_stride,
                                   const BlockFactors* factors, uint32_t factors_stride,
                                   SegmentSums<kRows>* sums) {
  const uint32_t line0[4] = {block.lines[0].x, block.lines[0].y, block.lines[0].z,
                             block.lines[0].w};
  const uint32_t line1[4] = {block.lines[1].x, block.lines[1].y, block.lines[1].z,
                             block.lines[1].w};
  Nvfp4Octet low[4];
  Nvfp4Octet high[4];
  float w_scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    low[i] = DecodeNvfp4(line0[i]);
    high[i] = DecodeNvfp4(line1[i]);
    w_scale[i] = HalfE4m3(block.scales, i);
  }
#pragma unroll
  for (int t = 0; t < kRows; ++t) {
    const uint4 x = q[t * q_stride];
    const BlockFactors of_x = factors[t * factors_stride];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int32_t dot = __dp4a(low[i].first, static_cast<int32_t>(x.x), of_x.dot_start);
      dot = __dp4a(low[i].second, static_cast<int32_t>(x.y), dot);
      dot = __dp4a(high[i].first, static_cast<int32_t>(x.z), dot);
      dot = __dp4a(high[i].second, static_cast<int32_t>(x.w), dot);
      const float exact = __fsub_rn(__int_as_float(dot), kIntegerFloat);
      sums->of[t][i] = __fmaf_rn(__fmul_rn(of_x.scale, w_scale[i]), exact, sums->of[t][i]);
    }
  }
}

// One segment of one band of one projection: the share of four lanes. The first sub-blocks are
// asked for before the rows of x are staged, so that both waits are one.
template <int kRows>
struct Unit {
  // Sub-blocks; more of them cost registers and so resident warps. At four rows the second one
  // does.
  static constexpr uint32_t kAhead = kRows == 4 ? 1 : 2;

  uint32_t index = 0;
  uint32_t lane = 0;
  uint32_t first = 0;  // sub-block of the row
  uint32_t count = 0;  // of sub-blocks; zero: this lane has no share
  const uint4* codes = nullptr;
  const uint32_t* scales = nullptr;
  SubBlock ahead[kAhead];

  __device__ Unit(const KernelArgs& args, const std::byte* blob, uint32_t projections)
      : index(threadIdx.x / kLanesPerUnit), lane(threadIdx.x % kLanesPerUnit) {
    const uint32_t projection = index / args.segments % projections;
    const uint32_t band_in_block = index / args.segments / projections;
    const uint32_t band = blockIdx.x * args.bands_per_block + band_in_block;
    if (band_in_block >= args.bands_per_block || band >= args.band_count) return;
    first = index % args.segments * kSegmentSubBlocks;
    count = min(kSegmentSubBlocks, args.cols / kNvfp4BlockValues - first);
    const std::byte* bytes =
        blob + args.projection_offset_bytes[projection] + band * args.band_bytes;
    codes = reinterpret_cast<const uint4*>(bytes) + first * kSubBlockLines + lane;
    scales = reinterpret_cast<const uint32_t*>(bytes + size_t{args.cols} * 8) + first * 4 + lane;
#pragma unroll
    for (uint32_t b = 0; b < kAhead; ++b) {
      if (b < count) ahead[b] = LoadSubBlock(codes, scales, b);
    }
  }
};

// The sums of all units of the block, into shared memory over the staged rows.
template <int kRows>
__device__ void ReduceSegments(const KernelArgs& args, Unit<kRows>& unit, const uint4* staged_q,
                               const BlockFactors* staged_blocks, float4* segment_sums) {
  constexpr uint32_t kAhead = Unit<kRows>::kAhead;
  const uint32_t sub_blocks = args.cols / kNvfp4BlockValues;
  const uint4* q = staged_q + unit.first / kSegmentSubBlocks * kStagedSegmentLines;
  const BlockFactors* factors = staged_blocks + unit.first;
  SegmentSums<kRows> sums = {};
  for (uint32_t begin = 0; begin < unit.count; begin += kAhead) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t b = begin + i;
      if (b < unit.count) {
        const SubBlock block = unit.ahead[i];
        if (b + kAhead < unit.count) {
          unit.ahead[i] = LoadSubBlock(unit.codes, unit.scales, b + kAhead);
        }
        AddSubBlock<kRows>(block, q + b, args.segments * kStagedSegmentLines, factors + b,
                           sub_blocks, &sums);
      }
    }
  }
  __syncthreads();  // all have read the staged rows
  if (unit.count > 0) {
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      segment_sums[(unit.index * kRows + t) * kLanesPerUnit + unit.lane] = {
          sums.of[t][0], sums.of[t][1], sums.of[t][2], sums.of[t][3]};
    }
  }
  __syncthreads();
}

// One output before its multiplier: the segments of (band, projection) in order.
template <int kRows>
__device__ inline float SumInOrder(const float* segment_sums, uint32_t first_unit,
                                   uint32_t segments, uint32_t t, uint32_t row) {
  float total = segment_sums[(first_unit * kRows + t) * kBandRows + row];
  for (uint32_t s = 1; s < segments; ++s) {
    total = __fadd_rn(total, segment_sums[((first_unit + s) * kRows + t) * kBandRows + row]);
  }
  return total;
}

__device__ inline float MultiplierOf(const KernelArgs& args, const std::byte* blob,
                                     int projection) {
  return *reinterpret_cast<const float*>(blob + args.multiplier_offset_bytes[projection]);
}

// Gate, up, SwiGLU and the quantisation of h: one warp for each (32 values of h, row of x).
template <int kRows>
__device__ void GateUpBlock(const KernelArgs& args, const ExpertFfnItem& item, uint32_t rows,
                            uint4* shared) {
  Unit<kRows> unit(args, item.blob, 2);
  auto* staged_blocks =
      reinterpret_cast<BlockFactors*>(shared + kRows * args.segments * kStagedSegmentLines);
  StageRows<kRows>(
      args, args.x, rows,
      [&](uint32_t t) { return size_t{args.entries[item.entry_begin + t].x_row}; }, shared,
      staged_blocks);
  __syncthreads();
  ReduceSegments<kRows>(args, unit, shared, staged_blocks, reinterpret_cast<float4*>(shared));

  const auto* sums = reinterpret_cast<const float*>(shared);
  const float gate_multiplier = MultiplierOf(args, item.blob, 0);
  const float up_multiplier = MultiplierOf(args, item.blob, 1);
  const uint32_t pairs = args.bands_per_block / 2;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t h_blocks = (args.band_count + 1) / 2;
  for (uint32_t job = threadIdx.x / 32; job < pairs * rows; job += blockDim.x / 32) {
    const uint32_t t = job / pairs;
    const uint32_t pair = job % pairs;
    const uint32_t band_in_block = pair * 2 + lane / kBandRows;
    const bool valid = blockIdx.x * args.bands_per_block + band_in_block < args.band_count;
    float h = 0;
    if (valid) {
      const uint32_t gate_unit = band_in_block * 2 * args.segments;
      const float gate = __fmul_rn(
          SumInOrder<kRows>(sums, gate_unit, args.segments, t, lane % kBandRows), gate_multiplier);
      const float up = __fmul_rn(
          SumInOrder<kRows>(sums, gate_unit + args.segments, args.segments, t, lane % kBandRows),
          up_multiplier);
      h = __fmul_rn(SiluOf(gate), up);
    }
    const QuantizedLane quantized = QuantizeLane(h, valid);
    const uint32_t h_block = blockIdx.x * pairs + pair;
    if (h_block >= h_blocks) continue;  // the same for the whole warp
    const size_t at = size_t{item.entry_begin + t} * h_blocks + h_block;
    args.h.q[at * kActivationBlockValues + lane] = static_cast<int8_t>(quantized.q);
    if (lane == 0) args.h.scale[at] = quantized.scale;
    if (lane % 16 == 0) args.h.sum16[at * 2 + lane / 16] = quantized.sum16;
  }
}

template <int kRows>
__device__ void DownBlock(const KernelArgs& args, const ExpertFfnItem& item, uint32_t rows,
                          uint4* shared) {
  Unit<kRows> unit(args, item.blob, 1);
  auto* staged_blocks =
      reinterpret_cast<BlockFactors*>(shared + kRows * args.segments * kStagedSegmentLines);
  StageRows<kRows>(
      args, args.h, rows, [&](uint32_t t) { return size_t{item.entry_begin + t}; }, shared,
      staged_blocks);
  __syncthreads();
  ReduceSegments<kRows>(args, unit, shared, staged_blocks, reinterpret_cast<float4*>(shared));

  const auto* sums = reinterpret_cast<const float*>(shared);
  const float multiplier = MultiplierOf(args, item.blob, 0);
  const uint32_t first_band = blockIdx.x * args.bands_per_block;
  const uint32_t outputs = min(args.bands_per_block, args.band_count - first_band) * kBandRows;
  for (uint32_t job = threadIdx.x; job < outputs * rows; job += blockDim.x) {
    const uint32_t t = job / outputs;
    const uint32_t output = job % outputs;
    const float total = SumInOrder<kRows>(sums, output / kBandRows * args.segments, args.segments,
                                          t, output % kBandRows);
    const size_t row = args.entries[item.entry_begin + t].y_row;
    args.y[row * args.y_stride + size_t{first_band} * kBandRows + output] =
        __fmul_rn(total, multiplier);
  }
}

enum class Stage { kGateUp, kDown };

// The smallest class of rows that holds this item's: the same for the whole block.
template <Stage kStage, int kRows, int kRowsMax>
__device__ void ChooseRows(const KernelArgs& args, const ExpertFfnItem& item, uint32_t rows,
                           uint4* shared) {
  if constexpr (kRows < kRowsMax) {
    if (rows > kRows) return ChooseRows<kStage, kRows * 2, kRowsMax>(args, item, rows, shared);
  }
  if constexpr (kStage == Stage::kGateUp) {
    GateUpBlock<kRows>(args, item, rows, shared);
  } else {
    DownBlock<kRows>(args, item, rows, shared);
  }
}

// grid: (blocks_per_item, items).
template <Stage kStage, int kRowsMax>
__global__ void __launch_bounds__(kFfnThreadsMax) ExpertFfnKernel(const KernelArgs args) {
  extern __shared__ uint4 shared[];
  if (args.item_count != nullptr && blockIdx.y >= *args.item_count) return;
  const ExpertFfnItem item = args.items[blockIdx.y];
  // The host promises entry_count <= rows_max; a broken promise must not leave the arrays.
  const uint32_t rows = min(item.entry_count, static_cast<uint32_t>(kRowsMax));
  ChooseRows<kStage, 1, kRowsMax>(args, item, rows, shared);
}

using Kernel = void (*)(KernelArgs);

template <Stage kStage>
Kernel KernelOf(uint32_t rows_class) {
  switch (rows_class) {
    case 1:
      return ExpertFfnKernel<kStage, 1>;
    case 2:
      return ExpertFfnKernel<kStage, 2>;
    case 4:
      return ExpertFfnKernel<kStage, 4>;
    default:
      HEARTH_CHECK(rows_class == kExpertRowsMax);
      return ExpertFfnKernel<kStage, 8>;
  }
}

absl::Status Enqueue(Kernel kernel, const ExpertFfnCut& cut, uint32_t item_count, KernelArgs args,
                     cudaStream_t stream) {
  constexpr uint32_t kSharedBytesWithoutAsking = 48u << 10;
  args.segments = cut.segments;
  args.bands_per_block = cut.bands_per_block;
  if (cut.shared_bytes > kSharedBytesWithoutAsking) {
    HEARTH_RETURN_IF_ERROR(CudaStatus(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(cut.shared_bytes)),
        absl::StrCat("expert kernel with ", cut.shared_bytes, " bytes of shared memory").c_str()));
  }
  kernel<<<dim3(cut.blocks_per_item, item_count), cut.threads, cut.shared_bytes, stream>>>(args);
  return CudaStatus(cudaGetLastError(), "launch of an expert kernel");
}

}  // namespace

absl::Status LaunchExpertFfn(const ExpertFfnDesc& desc, const ExpertFfnPlan& plan,
                             const ExpertFfnArgs& args, CudaStreamView stream) {
  if (plan.stream.blocks != 0) return LaunchExpertFfnStream(desc, plan, args, stream);
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const ExpertLayout& layout = desc.layout;
  KernelArgs common = {};
  common.items = args.items;
  common.item_count = args.item_count;
  common.entries = args.entries;
  common.x = {const_cast<int8_t*>(args.q), const_cast<float*>(args.scale),
              const_cast<int32_t*>(args.sum16)};
  common.h = {reinterpret_cast<int8_t*>(args.workspace + plan.h_offset_bytes),
              reinterpret_cast<float*>(args.workspace + plan.h_scale_offset_bytes),
              reinterpret_cast<int32_t*>(args.workspace + plan.h_sum_offset_bytes)};
  common.y = args.y;
  common.y_stride = args.y_stride;
  const auto add_projection = [&](KernelArgs* kernel_args, int index, Projection p) {
    kernel_args->cols = layout.cols(p);
    kernel_args->band_count = BandCount(layout.rows(p));
    kernel_args->band_bytes = layout.band_bytes(p);
    kernel_args->projection_offset_bytes[index] = layout.projection_offset_bytes(p);
    kernel_args->multiplier_offset_bytes[index] = layout.scale_offset_bytes(p);
  };
  KernelArgs gate_up = common;
  add_projection(&gate_up, 0, Projection::kGate);
  add_projection(&gate_up, 1, Projection::kUp);
  HEARTH_RETURN_IF_ERROR(Enqueue(KernelOf<Stage::kGateUp>(plan.rows_class), plan.gate_up,
                                 desc.item_count, gate_up, stream.get()));
  KernelArgs down = common;
  add_projection(&down, 0, Projection::kDown);
  return Enqueue(KernelOf<Stage::kDown>(plan.rows_class), plan.down, desc.item_count, down,
                 stream.get());
}

}  // namespace hearth
