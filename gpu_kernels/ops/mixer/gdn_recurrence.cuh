// The recurrence of the delta rule on eight columns of one head's state, which a warp keeps in
// registers: sixteen lanes to a column, no barrier between rows.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/mixer/row_vectors.cuh"

namespace hearth {

// One row as a warp needs it.
struct RowInputs {
  const float* k;
  const float* q;  // null: the row is pending, only the state is wanted
  const float* v;  // of the warp's eight columns
  float decay;
  float beta;
  float query_key;  // q . k
};

// Lane l holds rows (l / 2) * kKeyRows ... of the state, columns (l % 2) * 4 ... of the warp's
// eight.
template <uint32_t kKeyRows>
struct StateTile {
  float4 of[kKeyRows];
};

// The lane's rows of a key or query in shared memory, 16-byte aligned.
template <uint32_t kKeyRows>
__device__ inline void LoadKeys(const float* from, uint32_t lane, float (&values)[kKeyRows]) {
  if constexpr (kKeyRows == 2) {
    const float2 two = reinterpret_cast<const float2*>(from)[lane / 2];
    values[0] = two.x;
    values[1] = two.y;
  } else {
#pragma unroll
    for (uint32_t i = 0; i < kKeyRows; i += 4) {
      const float4 four = LoadVector(from, (lane / 2 * kKeyRows + i) / 4);
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }
}

// Sums over the sixteen lanes of each column, cut in halves: afterwards the lane's one column is
// ColumnOf(lane).
__device__ inline float2 HalveOver(float4 v, uint32_t lane, uint32_t bit) {
  const bool upper = (lane & bit) != 0;
  const float send0 = upper ? v.x : v.z;
  const float send1 = upper ? v.y : v.w;
  const float keep0 = upper ? v.z : v.x;
  const float keep1 = upper ? v.w : v.y;
  return {keep0 + __shfl_xor_sync(kAllWarpLanes, send0, bit),
          keep1 + __shfl_xor_sync(kAllWarpLanes, send1, bit)};
}
__device__ inline float HalveOver(float2 v, uint32_t lane, uint32_t bit) {
  const bool upper = (lane & bit) != 0;
  const float send = upper ? v.x : v.y;
  const float keep = upper ? v.y : v.x;
  return keep + __shfl_xor_sync(kAllWarpLanes, send, bit);
}
__device__ inline float SumOfColumn(float4 v, uint32_t lane) {
  float sum = HalveOver(HalveOver(v, lane, 16), lane, 8);
  sum = sum + __shfl_xor_sync(kAllWarpLanes, sum, 4);
  return sum + __shfl_xor_sync(kAllWarpLanes, sum, 2);
}
__device__ inline uint32_t ColumnOf(uint32_t lane) {
  return (lane & 1) * 4 + (lane & 16) / 8 + (lane & 8) / 8;
}

template <uint32_t kKeyRows>
__device__ inline float4 TimesState(const StateTile<kKeyRows>& s, const float (&x)[kKeyRows]) {
  float4 acc = {0, 0, 0, 0};
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    acc = {__fmaf_rn(s.of[i].x, x[i], acc.x), __fmaf_rn(s.of[i].y, x[i], acc.y),
           __fmaf_rn(s.of[i].z, x[i], acc.z), __fmaf_rn(s.of[i].w, x[i], acc.w)};
  }
  return acc;
}

// One row of the recurrence on the warp's columns. With a query, returns the output of column
// ColumnOf(lane), from the state before the row: q (decay S + k d) = decay (q S) + (q . k) d.
template <uint32_t kKeyRows>
__device__ inline float RunRow(const RowInputs& row, uint32_t lane, StateTile<kKeyRows>* s) {
  float key[kKeyRows];
  LoadKeys<kKeyRows>(row.k, lane, key);
  float out = 0;
  if (row.q != nullptr) {
    float query[kKeyRows];
    LoadKeys<kKeyRows>(row.q, lane, query);
    out = SumOfColumn(TimesState(*s, query), lane);
  }
  const float read = SumOfColumn(TimesState(*s, key), lane);
  const float value = row.v[ColumnOf(lane)];
  const float delta = __fmul_rn(row.beta, __fsub_rn(value, __fmul_rn(row.decay, read)));
  out = __fmaf_rn(row.query_key, delta, __fmul_rn(row.decay, out));
  const uint32_t half = lane & 1;
  const float4 d = {
      __shfl_sync(kAllWarpLanes, delta, half), __shfl_sync(kAllWarpLanes, delta, half + 8),
      __shfl_sync(kAllWarpLanes, delta, half + 16), __shfl_sync(kAllWarpLanes, delta, half + 24)};
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    float4& at = s->of[i];
    at = {__fmaf_rn(key[i], d.x, __fmul_rn(row.decay, at.x)),
          __fmaf_rn(key[i], d.y, __fmul_rn(row.decay, at.y)),
          __fmaf_rn(key[i], d.z, __fmul_rn(row.decay, at.z)),
          __fmaf_rn(key[i], d.w, __fmul_rn(row.decay, at.w))};
  }
  return out;
}

}  // namespace hearth
