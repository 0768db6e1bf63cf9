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

// Bytes of one band in one stage: codes, then scales.
inline constexpr uint32_t kGemmCodeBytes = kGemmStageBlocks * kBandRows * 16;
inline constexpr uint32_t kGemmBandBytes = kGemmCodeBytes + kGemmStageBlocks * 2 * kBandRows;

// Weights of a block of 32 values: A of mma.m16n8k16 for its two sub-blocks.
struct BlockWeights {
  uint32_t a[2][4];
};

// fp16 of the codes whose magnitudes `magnitudes` has at bits 9 to 11 and 25 to 27 and whose signs
// `signs` has at bits 15 and 31. E2M1's three magnitude bits in the place of fp16's lowest exponent
// bits and highest mantissa bit are the same number times 2^-14, subnormals included.
__device__ inline __half2 Halves(uint32_t magnitudes, uint32_t signs) {
  const uint32_t bits = (magnitudes & 0x0E000E00u) | (signs & 0x80008000u);
  return reinterpret_cast<const __half2&>(bits);
}

__device__ inline uint32_t Scaled(__half2 value, __half2 scale) {
  const __half2 scaled = __hmul2(value, scale);
  return reinterpret_cast<const uint32_t&>(scaled);
}

// Block `block` of the stage out of the warp's staged band. A lane decodes bytes t % 2 and t % 2 +
// 2 of a word of either sub-block: together they fill a word.
__device__ inline BlockWeights LoadBlock(const std::byte* band, uint32_t block, uint32_t lane) {
  const uint32_t g = lane / 4;
  const uint32_t t = lane % 4;
  const auto* words = reinterpret_cast<const uint32_t*>(band) + (4 * block + t / 2) * kBandRows + g;
  const auto* scales =
      reinterpret_cast<const uint8_t*>(band + kGemmCodeBytes) + 2 * block * kBandRows + g;
  const uint32_t selector = t % 2 == 0 ? 0x6240 : 0x7351;
  BlockWeights w;
#pragma unroll
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t bytes =
        __byte_perm(words[8 * r], words[2 * kBandRows + 8 * r], selector);  // of sub-blocks 0 1 0 1
    const uint32_t scale_bits = scales[8 * r] * 0x80u + scales[kBandRows + 8 * r] * 0x800000u;
    // An E4M3 code seven bits higher is 2^-8 of its value as fp16; times 2^15 and 2^-14: 2^-7.
    const __half2 scale = __hmul2(reinterpret_cast<const __half2&>(scale_bits),
                                  __half2half2(__ushort_as_half(0x7800)));  // 2^15
    w.a[0][r] = Scaled(Halves(bytes << 9, bytes << 12), __low2half2(scale));
    w.a[0][2 + r] = Scaled(Halves(bytes << 5, bytes << 8), __low2half2(scale));
    w.a[1][r] = Scaled(Halves(bytes << 1, bytes << 4), __high2half2(scale));
    w.a[1][2 + r] = Scaled(Halves(bytes >> 3, bytes), __high2half2(scale));
  }
  return w;
}

// w (16 x 16) * x (16 x 8): rows g and g + 8, columns 2t and 2t + 1.
__device__ inline float4 Multiply(const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  float4 d;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  return d;
}

__device__ inline void AddScaled(const float4& d, const float2& scale, float4& sum) {
  sum.x = __fmaf_rn(scale.x, d.x, sum.x);
  sum.y = __fmaf_rn(scale.y, d.y, sum.y);
  sum.z = __fmaf_rn(scale.x, d.z, sum.z);
  sum.w = __fmaf_rn(scale.y, d.w, sum.w);
}

// Ends a segment of a lane's sums: it goes to the totals, kCount float4 32 apart.
template <int kCount>
__device__ inline void AddToTotals(float4* segment, float4* totals) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float4 total = totals[i * 32];
    const float4 sum = segment[i];
    totals[i * 32] = {__fadd_rn(total.x, sum.x), __fadd_rn(total.y, sum.y),
                      __fadd_rn(total.z, sum.z), __fadd_rn(total.w, sum.w)};
    segment[i] = float4{0, 0, 0, 0};
  }
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
  __device__ void EndSegment() { AddToTotals<kGemmWarpBands * kTiles>(segment[0], totals); }
};

// One block of 32 values. `bands`: of the warp, kGemmBandBytes each; `x`: (columns, 64 bytes) of
// the block; `scale`: (columns); `tiles`: of eight columns, the same for the whole block of
// threads.
template <int kTiles>
__device__ inline void AddBlock(const std::byte* bands, uint32_t block, const std::byte* x,
                                const float* scale, uint32_t lane, BandSums<kTiles>& sums) {
  BlockWeights w[kGemmWarpBands];
#pragma unroll
  for (int i = 0; i < kGemmWarpBands; ++i)
    w[i] = LoadBlock(bands + i * kGemmBandBytes, block, lane);
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
      low[i] = Multiply(w[i].a[0], b.x, b.y);
      high[i] = Multiply(w[i].a[1], b.z, b.w);
    }
#pragma unroll
    for (int i = 0; i < kGemmWarpBands; ++i) {
      AddScaled(low[i], s, sums.segment[i][n]);
      AddScaled(high[i], s, sums.segment[i][n]);
    }
  }
}

}  // namespace hearth
