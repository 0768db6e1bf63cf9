// The inner product of gpu_kernels/ops/prompt/expert_gemm.h: one warp, two bands of 16 weight rows,
// eight columns times kTiles, a stage of 64 reduction values at a time.
//
// Order of values. mma.m16n8k16 pairs values of A and B by position alone, so positions may be
// given out freely. Lane (g = lane / 4, t = lane % 4) holds of each sub-block and of rows g and g +
// 8 the four codes in byte b = t % 2 and byte b + 2 of line l = t / 2, which are the values
//   8l + b, 8l + b + 2 (low nibbles), 8l + 4 + b, 8l + 6 + b (high nibbles),
// and activations are stored in that order: 32 values are [t][sub-block][4].
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "pack/format/expert_layout.h"

namespace hearth {

inline constexpr uint32_t kGemmBlockValues = 32;  // activations that share a scale
inline constexpr uint32_t kGemmStageBlocks = 2;
inline constexpr uint32_t kGemmSegmentBlocks = 10;  // a segment of the canonical sum is 320 values
inline constexpr uint32_t kGemmWarps = 8;
inline constexpr uint32_t kGemmWarpBands = 2;  // share what is read of the columns

// fp16 weights carry 2^-7, so that the largest is finite and the smallest exact; the activation's
// scale takes it back.
inline constexpr float kGemmScaleFactor = 128.0f;

// Bytes of one band in one stage: codes, then scales.
inline constexpr uint32_t kGemmCodeBytes = kGemmStageBlocks * kBandRows * 16;
inline constexpr uint32_t kGemmBandBytes = kGemmCodeBytes + kGemmStageBlocks * 2 * kBandRows;

// What a sub-block's codes and scales of two rows become: A of mma.m16n8k16.
struct WeightFragment {
  uint32_t a[4];
};

// Codes of one row: byte b and byte b + 2 of `word`, b = shift / 8. E2M1's three magnitude bits in
// the place of fp16's lowest exponent bits and highest mantissa bit are the same number times
// 2^-14, subnormals included.
__device__ inline void DecodeRow(uint32_t word, uint32_t shift, uint32_t scale_code, uint32_t& low,
                                 uint32_t& high) {
  constexpr uint32_t kMagnitude = 0x0E000E00u;
  constexpr uint32_t kSign = 0x80008000u;
  const uint32_t w = word >> shift;
  const uint32_t low_bits = ((w << 9) & kMagnitude) | ((w << 12) & kSign);
  const uint32_t high_bits = ((w << 5) & kMagnitude) | ((w << 8) & kSign);
  // An E4M3 code seven bits higher is 2^-8 of its value as fp16; times 2^15 and 2^-14: 2^-7.
  const uint32_t scale_bits = scale_code * 0x00800080u;
  const __half2 scale = __hmul2(reinterpret_cast<const __half2&>(scale_bits),
                                __half2half2(__ushort_as_half(0x7800)));  // 2^15
  const __half2 low_scaled = __hmul2(reinterpret_cast<const __half2&>(low_bits), scale);
  const __half2 high_scaled = __hmul2(reinterpret_cast<const __half2&>(high_bits), scale);
  low = reinterpret_cast<const uint32_t&>(low_scaled);
  high = reinterpret_cast<const uint32_t&>(high_scaled);
}

// Sub-block `s` of the stage out of the warp's staged band.
__device__ inline WeightFragment LoadWeights(const std::byte* band, uint32_t s, uint32_t lane) {
  const uint32_t g = lane / 4;
  const uint32_t t = lane % 4;
  const auto* words = reinterpret_cast<const uint32_t*>(band) + (2 * s + t / 2) * kBandRows;
  const auto* scales = reinterpret_cast<const uint8_t*>(band + kGemmCodeBytes) + s * kBandRows;
  WeightFragment w;
  DecodeRow(words[g], t % 2 * 8, scales[g], w.a[0], w.a[2]);
  DecodeRow(words[g + 8], t % 2 * 8, scales[g + 8], w.a[1], w.a[3]);
  return w;
}

// w (16 x 16) * x (16 x 8): rows g and g + 8, columns 2t and 2t + 1.
__device__ inline float4 Multiply(const WeightFragment& w, uint32_t b0, uint32_t b1) {
  float4 d;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
      : "r"(w.a[0]), "r"(w.a[1]), "r"(w.a[2]), "r"(w.a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  return d;
}

__device__ inline void AddScaled(const float4& d, const float2& scale, float4& sum) {
  sum.x = __fmaf_rn(scale.x, d.x, sum.x);
  sum.y = __fmaf_rn(scale.y, d.y, sum.y);
  sum.z = __fmaf_rn(scale.x, d.z, sum.z);
  sum.w = __fmaf_rn(scale.y, d.w, sum.w);
}

// What a warp has summed: of the segment in registers, of the segments before it in shared memory,
// for each band kTiles float4 of each lane, 32 lanes apart.
template <int kTiles>
struct BandSums {
  float4 segment[kGemmWarpBands][kTiles];
  float4* totals;  // of this lane

  __device__ explicit BandSums(float4* lane_totals) : totals(lane_totals) {
#pragma unroll
    for (int i = 0; i < kGemmWarpBands * kTiles; ++i) {
      segment[i / kTiles][i % kTiles] = totals[i * 32] = float4{0, 0, 0, 0};
    }
  }
  __device__ void EndSegment() {
#pragma unroll
    for (int i = 0; i < kGemmWarpBands * kTiles; ++i) {
      float4& sum = segment[i / kTiles][i % kTiles];
      const float4 total = totals[i * 32];
      totals[i * 32] = {__fadd_rn(total.x, sum.x), __fadd_rn(total.y, sum.y),
                        __fadd_rn(total.z, sum.z), __fadd_rn(total.w, sum.w)};
      sum = float4{0, 0, 0, 0};
    }
  }
};

// One block of 32 values. `bands`: of the warp, kGemmBandBytes each; `x`: (columns, 64 bytes) of
// the block; `scale`: (columns); `tiles`: of eight columns, the same for the whole block of
// threads.
template <int kTiles>
__device__ inline void AddBlock(const std::byte* bands, uint32_t block, const std::byte* x,
                                const float* scale, uint32_t lane, BandSums<kTiles>& sums) {
  WeightFragment w[kGemmWarpBands][2];
#pragma unroll
  for (int i = 0; i < kGemmWarpBands; ++i) {
    w[i][0] = LoadWeights(bands + i * kGemmBandBytes, 2 * block, lane);
    w[i][1] = LoadWeights(bands + i * kGemmBandBytes, 2 * block + 1, lane);
  }
  const auto* columns = reinterpret_cast<const uint4*>(x) + lane;  // column g, part t
  const auto* scales = reinterpret_cast<const float2*>(scale) + lane % 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const uint4 b = columns[n * 32];
    const float2 s = scales[n * 4];
    float4 low[kGemmWarpBands];
    float4 high[kGemmWarpBands];
#pragma unroll
    for (int i = 0; i < kGemmWarpBands; ++i) {
      low[i] = Multiply(w[i][0], b.x, b.y);
      high[i] = Multiply(w[i][1], b.z, b.w);
    }
#pragma unroll
    for (int i = 0; i < kGemmWarpBands; ++i) {
      AddScaled(low[i], s, sums.segment[i][n]);
      AddScaled(high[i], s, sums.segment[i][n]);
    }
  }
}

}  // namespace hearth
