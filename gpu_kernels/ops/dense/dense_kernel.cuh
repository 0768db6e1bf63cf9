// What the two kinds of units of a window product share: the arguments of the kernel, where a unit
// belongs, and what happens to a finished sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "gpu_kernels/ops/dense/dense_plan.h"

namespace hearth {

struct KernelOutput {
  const std::byte* w;
  float* y;
  uint32_t y_stride;
  uint32_t rows;
  uint32_t first_unit;  // among the units of its kind
  MatrixFormat format;
  Activation activation;
  float scale_in;
  float scale_out;
};

struct MatmulKernelArgs {
  KernelOutput outputs[kMatmulOutputsMax];  // Q8 matrices first
  uint32_t q8_output_count;
  uint32_t output_count;
  DeviceRows x;
  uint32_t rows;
  uint32_t cols;
  uint32_t segments;
  uint32_t teams;
  uint32_t band_count;
  uint32_t row_unit_count;
  uint32_t row_jobs;  // units of the teams of one block; jobs before the bands'
  uint32_t places;    // of a warp in one unit
  MatmulSharedLayout layout;
};

// Index of the output in [begin, end) that `unit` belongs to.
__device__ inline uint32_t OutputOf(const KernelOutput* outputs, uint32_t begin, uint32_t end,
                                    uint32_t unit) {
  uint32_t index = begin;
  while (index + 1 < end && unit >= outputs[index + 1].first_unit) ++index;
  return index;
}

__device__ inline float Activate(const KernelOutput& output, float v) {
  if (output.activation == Activation::kNone) return v;
  v = __fmul_rn(v, output.scale_in);
  if (output.activation == Activation::kSilu) return SiluOf(v);
  return __fmul_rn(output.scale_out, SigmoidOf(v));
}

__device__ inline void WriteOutput(const KernelOutput& output, uint32_t row_of_w, uint32_t row_of_x,
                                   float v) {
  if (row_of_w >= output.rows) return;
  output.y[size_t{row_of_x} * output.y_stride + row_of_w] = Activate(output, v);
}

// Which warp this is of which team.
struct TeamPlace {
  uint32_t team;
  uint32_t segment;
  uint32_t lane;
};

// Sums of the segments in shared memory, two sets that are written in turn: one barrier for each
// round of units suffices.
struct SegmentSums {
  float* sums;
  uint32_t unit_values;  // room of one unit's segment
  uint32_t parity = 0;

  __device__ float* Of(const MatmulKernelArgs& args, uint32_t team, uint32_t segment) const {
    return sums + ((parity * args.teams + team) * args.segments + segment) * unit_values;
  }
};

}  // namespace hearth
