// What the kernel of activate_quantize.h does with one vector of four values: for that kernel, and
// for one that has threads to spare beside something else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"

namespace hearth {

__device__ inline float4 Activated(const GpuActivateQuantizeArgs& args, size_t at) {
  const float4 x = LoadVector(args.x, at);
  switch (args.function) {
    case RowFunction::kNone:
      return x;
    case RowFunction::kSilu:
      return MapVector(x, [&](float v) { return SiluOf(__fmul_rn(v, args.scale)); });
    case RowFunction::kSwiglu:
      return MapVector(x, LoadVector(args.up, at),
                       [](float gate, float up) { return __fmul_rn(SiluOf(gate), up); });
  }
  return x;
}

// Vectors of a row whose last block is filled up.
__host__ __device__ constexpr uint32_t PaddedVectors(uint32_t cols) {
  return (cols + kActivationBlockValues - 1) / kActivationBlockValues * kBlockVectors;
}

// Vector i of a row. All lanes of the warp call, eight neighbours for a block, the first of them a
// multiple of eight; those that are not `there` only take part in the exchange. Reads before it
// writes.
__device__ inline void ActivateVector(const GpuActivateQuantizeArgs& args, uint32_t row, uint32_t i,
                                      bool there) {
  const uint32_t vectors = args.cols / 4;
  const uint32_t padded = PaddedVectors(args.cols);
  float4 y = {0, 0, 0, 0};
  if (there && i < vectors) {
    y = Activated(args, size_t{row} * (args.x_stride / 4) + i);
    if (args.y != nullptr) StoreVector(args.y, size_t{row} * vectors + i, y);
  }
  if (args.quantized.q != nullptr) {
    StoreQuantized(args.quantized, size_t{row} * padded + i, y, there && i < padded);
  }
}

}  // namespace hearth
