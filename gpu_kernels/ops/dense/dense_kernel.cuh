// What the two kinds of units of a window product share: the arguments of the kernel, where a unit
// belongs, and what happens to a finished sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/common/arithmetic.cuh"
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
  return __fmul_rn(output.scale_out, __fdiv_rn(1.0f, __fadd_rn(1.0f, ExpOf(-v))));
}

// Weights are read once: they pass the first cache by.
__device__ inline uint2 LoadOnce8(const std::byte* from) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(from));
  return v;
}
__device__ inline uint4 LoadOnce16(const std::byte* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ inline uint32_t LoadOnce4(const std::byte* from) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
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
