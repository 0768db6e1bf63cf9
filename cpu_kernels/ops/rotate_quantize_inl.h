// Shared body: rows into the rotated space and to int8 (definition: scalar/quantize.cc). Compiled
// once by each instruction set, after its rotate_register_inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_kernels/ops/unroll.h"
#include "cpu_kernels/ops/xt.h"
#include "pack/format/xt_layout.h"

namespace hearth::HEARTH_ISA {
namespace {

// Every pair of lanes that stand kSpan apart becomes (a + b, a - b): a + -b is the same.
template <int kSpan>
HEARTH_ISA_INLINE Register RotateLanes(Register v) {
  return RegisterAdd(RegisterSwap<kSpan>(v), RegisterNegateOdd<kSpan>(v));
}

// One block of N registers; `largest` collects the bits of magnitudes.
template <int N>
HEARTH_ISA_INLINE void RotateBlock(const float* x, uint32_t first_col, float factor, float* out,
                                   RegisterBits* largest) {
  Register v[N];
  HEARTH_UNROLL
  for (int i = 0; i < N; ++i) {
    const uint32_t col = first_col + static_cast<uint32_t>(i) * kRegisterLanes;
    v[i] = RegisterNegate(RegisterLoad(x + i * kRegisterLanes),
                          RotationSignBits(col & ~(kXtBlockCols - 1)) >> (col % kXtBlockCols));
    v[i] = RotateLanes<1>(v[i]);
    v[i] = RotateLanes<2>(v[i]);
    v[i] = RotateLanes<4>(v[i]);
    if constexpr (kRegisterLanes == 16) v[i] = RotateLanes<8>(v[i]);
  }
  HEARTH_UNROLL
  for (int span = 1; span < N; span *= 2) {
    HEARTH_UNROLL
    for (int i = 0; i < N; ++i) {
      if ((i & span) != 0) continue;
      const Register a = v[i];
      const Register b = v[i + span];
      v[i] = RegisterAdd(a, b);
      v[i + span] = RegisterSub(a, b);
    }
  }
  HEARTH_UNROLL
  for (int i = 0; i < N; ++i) {
    const Register y = RegisterMul(v[i], RegisterOf(factor));
    RegisterStore(out + i * kRegisterLanes, y, kRegisterLanes);
    *largest = RegisterLargest(*largest, y);
  }
}

template <int N>
HEARTH_ISA_INLINE void RotateBlocks(const float* x, uint32_t cols, float* out,
                                    RegisterBits* largest) {
  constexpr uint32_t kBlock = N * kRegisterLanes;
  const float factor = RotationFactor(kBlock);
  for (uint32_t col = 0; col < cols; col += kBlock) {
    RotateBlock<N>(x + col, col, factor, out + col, largest);
  }
}

HEARTH_ISA_INLINE void RunRotateQuantize(const RotateQuantizeArgs& args) {
  constexpr int kLanes = static_cast<int>(kRegisterLanes);
  const uint32_t block = RotationBlock(args.cols);
  for (size_t t = 0; t < args.rows; ++t) {
    const float* x = args.x + t * args.x_stride;
    RegisterBits largest = RegisterNoBits();
    if (block == 128) {
      RotateBlocks<128 / kLanes>(x, args.cols, args.scratch, &largest);
    } else if (block == 64) {
      RotateBlocks<64 / kLanes>(x, args.cols, args.scratch, &largest);
    } else {
      RotateBlocks<32 / kLanes>(x, args.cols, args.scratch, &largest);
    }
    args.scale[t] = RegisterScale(largest);
    args.sum[t] = QuantizeRow(args.scratch, args.cols, args.scale[t], args.q + t * args.cols);
  }
}

}  // namespace
}  // namespace hearth::HEARTH_ISA
