// Window products of few units and many columns: the segments of a unit lie in the blocks of a
// cluster, two to a block, so that the whole card reads. Each warp asks for all of its weights at
// once, before it awaits the launch before. Segments, their order and so every bit are those of
// band_products.cuh and row_products.cuh. Included by dense_matmul.cu.
#pragma once

#include "gpu_kernels/device/cluster.cuh"
#include "gpu_kernels/ops/dense/band_products.cuh"
#include "gpu_kernels/ops/dense/row_products.cuh"

namespace hearth {

// What a block has in shared memory; plan: LayOutClusterMatmul.
struct ClusterRoom {
  std::byte* slots;  // the warp's own
  std::byte* x;      // likewise: rows of x, then their scales
  float* sums;       // of all segments, in the first block of the cluster: [segment][value]
  uint32_t unit_values;
};

// Of value `job` of a unit, over all segments in order; in the cluster's first block.
__device__ inline float TotalOf(const MatmulKernelArgs& args, const ClusterRoom& room,
                                uint32_t job) {
  float total = room.sums[job];
  for (uint32_t s = 1; s < args.segments; ++s) {
    total = __fadd_rn(total, room.sums[s * room.unit_values + job]);
  }
  return total;
}

// The warp's segment of a band into the first block's sums.
template <int kRows>
__device__ void ClusterBand(const MatmulKernelArgs& args, const TeamPlace& place, uint32_t unit,
                            const ClusterRoom& room) {
  constexpr int kGroups = kRows > static_cast<int>(kTensorRows) ? 2 : 1;
  const uint32_t blocks = args.cols / kQ8BlockValues;
  const KernelOutput& output = args.outputs[OutputOf(args.outputs, 0, args.q8_output_count, unit)];
  const std::byte* band =
      output.w + size_t{unit - output.first_unit} * blocks * (kBlockCodeBytes + kBlockScaleBytes);
  const auto first_of = [&](uint32_t quad) {
    return (place.segment + quad / kChunkQuads * args.segments) * kChunkBlocks +
           quad % kChunkQuads * kQuadBlocks;
  };
  for (uint32_t quad = 0; quad < args.places; ++quad) {
    CopyQuad(band, blocks, first_of(quad), place.lane,
             SharedAddress(room.slots) + quad * kMatmulSlotBytes);
  }
  CommitCopies();
  const auto block_of = [&](uint32_t i) {
    return (place.segment + i / kChunkBlocks * args.segments) * kChunkBlocks + i % kChunkBlocks;
  };
  const uint32_t here = args.places / kMatmulPlacesPerChunk * kChunkBlocks;
  auto* const scale = reinterpret_cast<float*>(room.x + here * kRows * kQ8BlockValues);
  const StagedRows x = {reinterpret_cast<const uint32_t*>(room.x), scale};
  AwaitLaunchBefore();
  CopyRows<kRows>(args, place.lane, 32, here, block_of, SharedAddress(room.x));
  CommitCopies();
  StageScales<kRows>(args, place.lane, 32, here, block_of, scale);
  AwaitCopies<0>();
  __syncwarp();
  AllowLaunchAfter();
  BandSums<kGroups> sums = {};
  for (uint32_t quad = 0; quad < args.places; ++quad) {
#pragma unroll
    for (uint32_t i = 0; i < kQuadBlocks; ++i) {
      if (first_of(quad) + i >= blocks) break;
      AddBlock<kRows>(room.slots + quad * kMatmulSlotBytes, i, x, quad * kQuadBlocks + i,
                      place.lane, &sums);
    }
  }
  AwaitCluster();  // its first block has started
  if (place.segment < args.segments) {
    StoreSums<kGroups>(args.rows, place.lane, sums,
                       InClusterBlock(room.sums, 0) + place.segment * room.unit_values);
  }
  ArriveAtCluster();
  AwaitCluster();
  if (ClusterRank() != 0) return;
  for (uint32_t job = threadIdx.x; job < args.rows * kBandRows; job += blockDim.x) {
    WriteOutput(output, (unit - output.first_unit) * kBandRows + job % kBandRows, job / kBandRows,
                TotalOf(args, room, job));
  }
}

// The same for four rows of a row-major matrix.
template <int kRows>
__device__ void ClusterRows(const MatmulKernelArgs& args, const TeamPlace& place, uint32_t index,
                            const ClusterRoom& room) {
  constexpr uint32_t kValues = kRowUnitRows * kRows;
  const RowUnit unit(args, index);
  const uint32_t chunks = args.places / kMatmulPlacesPerChunk;
  const auto col_of = [&](uint32_t chunk) {
    return (place.segment + chunk * args.segments) * kMatmulChunkCols + place.lane * kLaneCols;
  };
  for (uint32_t i = 0; i < chunks; ++i) {
    CopyRowChunk(args, unit, place.lane, col_of(i),
                 SharedAddress(room.slots) + i * kMatmulSlotBytes);
  }
  CommitCopies();
  AwaitLaunchBefore();
  AwaitCopies<0>();  // a lane reads what it copied itself
  float sums[kValues] = {};
  for (uint32_t i = 0; i < chunks; ++i) {
    if (col_of(i) >= args.cols) continue;
    const auto* slot = reinterpret_cast<const uint4*>(room.slots + i * kMatmulSlotBytes);
    AddChunk<kRows>(args, unit, col_of(i), slot + place.lane, sums);
  }
  AllowLaunchAfter();
  const float sum = SumOverLanes<kValues>(sums, place.lane);
  const uint32_t value = place.lane / (32 / kValues);
  AwaitCluster();  // its first block has started
  if (place.segment < args.segments && place.lane % (32 / kValues) == 0) {
    InClusterBlock(room.sums, 0)[place.segment * room.unit_values + value] = sum;
  }
  ArriveAtCluster();
  AwaitCluster();
  if (ClusterRank() != 0 || threadIdx.x >= kValues || threadIdx.x % kRows >= unit.rows) return;
  WriteOutput(*unit.output, unit.first_row + threadIdx.x / kRows,
              unit.first_x + threadIdx.x % kRows, TotalOf(args, room, threadIdx.x));
}

}  // namespace hearth
