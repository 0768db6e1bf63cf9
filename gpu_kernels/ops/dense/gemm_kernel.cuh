// What the two prompt kernels share: their arguments, the place of a tile, swizzled lines of shared
// memory and the ring of stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu_kernels/ops/dense/dense_kernel.cuh"
#include "gpu_kernels/ops/dense/gemm_tiles.h"
#include "gpu_kernels/ops/dense/mma.cuh"

namespace hearth {

struct GemmKernelArgs {
  KernelOutput outputs[kMatmulOutputsMax];  // first_unit: first tile
  uint32_t output_count;
  uint32_t row_tiles;
  DeviceRows x;
  uint32_t rows;
  uint32_t cols;
};

inline GemmKernelArgs GemmKernelArgsOf(std::span<const MatmulOutput> outputs,
                                       const GemmTileMap& map, const DeviceRows& x, uint32_t rows,
                                       uint32_t cols) {
  GemmKernelArgs args = {};
  for (const MatmulOutput& o : outputs) {
    args.outputs[args.output_count] = {
        o.w.data,   o.y,          o.y_stride, o.w.rows,   map.first_tile[args.output_count],
        o.w.format, o.activation, o.scale_in, o.scale_out};
    ++args.output_count;
  }
  args.row_tiles = map.row_tiles;
  args.x = x;
  args.rows = rows;
  args.cols = cols;
  return args;
}

// y of two neighbouring rows of w and one row of x.
__device__ inline void WritePair(const KernelOutput& output, uint32_t row_of_w, uint32_t row_of_x,
                                 float first, float second) {
  if (row_of_w >= output.rows) return;
  float* to = output.y + size_t{row_of_x} * output.y_stride + row_of_w;
  first = Activate(output, first);
  if (row_of_w + 1 >= output.rows) {
    *to = first;
    return;
  }
  second = Activate(output, second);
  if (reinterpret_cast<uintptr_t>(to) % sizeof(float2) == 0) {
    *reinterpret_cast<float2*>(to) = {first, second};
  } else {
    to[0] = first;
    to[1] = second;
  }
}

// Byte offset of 16-byte piece `piece` of line `line` where lines have 64 bytes: eight lines that
// stand beside each other have any one piece on different banks.
__device__ inline uint32_t Line64Offset(uint32_t line, uint32_t piece) {
  return line * 64 + (piece ^ (line >> 1 & 3u)) * 16;
}

}  // namespace hearth
